"""One round of a masked sum: both halves, their messages, secrets and recovery."""
