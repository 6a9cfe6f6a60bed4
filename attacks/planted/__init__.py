"""Federations built to leak, for positive controls.

Reading order: ``ratings`` (FedRec++, and masks that some leave away), ``split``, ``organisations``,
``untouched`` and ``partners`` (algorithms written for this, their data, runs and truth).
"""
