"""FURL's table 3, its learning curves (figure 3) and its user embeddings (figures 4 and 5).

Reading order: ``paper``, ``studies``, ``tables``, ``similarity``, ``lines`` (all of it as text),
``drawing``, ``command``.
"""
