"""The server's half of masking.

Reading order: ``running_sum``, ``recovery`` (secrets from shares), ``unmasking``, ``steps`` (one
round step by step), ``half`` (the state machine).
"""
