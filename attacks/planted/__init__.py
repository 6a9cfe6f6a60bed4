"""Federations planted to leak, for positive controls: what an attack must find, it finds there.

Reading order: ``ratings`` (FedRec++), ``split``, ``organisations``, ``untouched`` and ``partners``
(algorithms written for this, their data, runs and truth), ``careless`` (masks that some leave
away).
"""
