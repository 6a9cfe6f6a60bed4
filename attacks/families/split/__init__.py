"""Attacks on split personalization: what changes of the shared parameters reveal.

Reading order: ``flat_uploads`` (what every server knows, and has), ``dense_layer`` (private
vectors), ``output_bias`` (labels, beside what the model knew already), ``touched_rows`` (inputs),
``attributes`` (who it is).
"""
