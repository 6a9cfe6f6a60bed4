"""The scheme: keys, encryption, and many ring words per ciphertext.

Reading order: ``arithmetic``, ``keys``, ``encryption``, ``slots``, ``vectors``, ``words``, ``sums``
(one call per step), ``pairwise`` (masks between clients), ``division``; ``phe_bridge``, which is
not imported here, talks to python-paillier.
"""
