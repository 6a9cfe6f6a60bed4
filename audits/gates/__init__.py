"""Gates and verdicts: what must hold, with three outcomes."""
