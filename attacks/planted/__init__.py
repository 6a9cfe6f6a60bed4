"""Planted federations, built to leak, for positive controls.

Reading order: ``ratings`` (FedRec++, and masks that some clients omit), ``split``,
``organisations``, ``untouched`` and ``partners`` (algorithms written for this, their data, runs and
truth).
"""
