"""FURL as an audit runs it: settings, texts and interactions, checks."""
