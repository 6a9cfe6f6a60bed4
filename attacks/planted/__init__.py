"""Federations planted to leak, for positive controls: what an attack must find, it finds there.

Reading order: ``ratings`` (FedRec++), ``split`` and ``organisations`` (two algorithms written for
this), ``runs`` (their data, runs and truth), ``untouched`` and ``partners`` (one more each, with
all of it).
"""
