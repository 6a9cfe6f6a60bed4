"""Bags: vectors that are collected without order or owner, beside the rows that are summed.

Reading order: ``bag_vectors`` (what a bag is), ``noise`` (per vector, before anything leaves),
``received_vectors`` (what the server accepts), ``named_senders`` and ``embedded_mixes`` (the two
ways to the server), ``embedded`` (both layers together, for a ``Stack``), ``hosted``, ``layer``.

    vectors --clip, noise ("local-dp")--> ring words --under names, or by mixes ("routing")--> bag

The server reads every vector of a bag, and nothing about it is added up; so neither masks nor
homomorphic encryption can hide one. A layer can hide the sender of a vector and, by noise, its
exact value.
"""

from secure_fedrec.protection.bags.bag_vectors import canonical_order
from secure_fedrec.protection.bags.config import BAG_NOISE_KEYS, LocalDPConfig
from secure_fedrec.protection.bags.embedded import BagSession, LayeredBags
from secure_fedrec.protection.bags.layer import BAG_ROUTING, LOCAL_DP
from secure_fedrec.protection.bags.noise import NoisyVectors
from secure_fedrec.protection.base.layer_interfaces import BagShape

__all__ = [
    "BAG_NOISE_KEYS",
    "BAG_ROUTING",
    "LOCAL_DP",
    "BagSession",
    "BagShape",
    "LayeredBags",
    "LocalDPConfig",
    "NoisyVectors",
    "canonical_order",
]
