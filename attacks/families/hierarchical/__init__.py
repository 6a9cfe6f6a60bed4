"""Attacks on hierarchical personalization: what weights and drafts say about an organisation.

Reading order: ``attribute_counts`` (the profile of its records), ``drafts`` (vectors and places of
its members).

There is no counterpart of ``split.dense_layer``: a client's change of its attribute vectors is a
sum over all of its users, none of whose vectors is the same for all examples, and no bias goes with
it.
"""
