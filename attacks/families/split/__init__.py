"""Attacks on split personalization: what the changes of the shared parameters say about the rest.

Reading order: ``architecture`` and ``flat_uploads`` (what every server knows, and has),
``dense_layer`` (private vectors), ``expectation`` (what the model knew already), ``output_bias``
(labels), ``touched_rows`` (inputs), ``attributes`` (who it is).
"""
