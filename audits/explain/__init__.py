"""Explains names in configurations and reports, from the code that defines them.

One source for ``secure-fedrec explain``, for the reference pages of the documentation and for the
JSON Schema of configurations: annotations and docstrings of settings (``fields``), the tables that
they are written in (``keys``), the records of layers, figures and attacks (``cards``).
"""
