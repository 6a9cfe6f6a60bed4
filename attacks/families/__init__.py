"""The attacks, by what they read."""
