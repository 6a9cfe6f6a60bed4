"""Statements of rounds in tests."""

from secure_fedrec.protection.session.statement import Later, Statement

FEDERATION = b"f" * 32
LATER = Later(federation=FEDERATION)


def about(state: bytes) -> Statement:
    """What a round over a state agrees on."""
    return Statement(federation=FEDERATION, state=state)
