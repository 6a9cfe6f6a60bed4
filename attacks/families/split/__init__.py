"""Attacks on split personalization: what the changes of the shared parameters say about the rest.

Reading order: ``flat_uploads`` (what every server knows, and has), ``dense_layer`` (private
vectors), ``output_bias`` (labels, beside what the model knew already), ``touched_rows`` (inputs),
``attributes`` (who it is).
"""
