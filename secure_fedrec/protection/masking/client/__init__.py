"""The client's half of masking.

Reading order: ``secrets`` (what a client draws and shares), ``steps`` (one round step by step),
``sealed_state`` and ``resumable`` (a half that outlives its process), ``half`` (the state machine).
"""
