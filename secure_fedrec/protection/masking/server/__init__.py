"""The server's half of masking.

Reading order: ``recovery`` (secrets from shares), ``unmasking`` (the sum), ``steps`` (one round
step by step), ``half`` (the state machine).
"""
