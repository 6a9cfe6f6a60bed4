"""Gates and verdicts: what must hold, judged three ways."""
