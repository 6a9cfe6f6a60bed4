"""How claims are judged, one module per kind: the claim, the records of its figures, its scorer.

Reading order: ``measures`` (what a record of a figure says), ``truth`` and ``scored`` (what a claim
is judged by, and what judging yields), ``sets`` and ``rated_sets``, ``ratings``, ``links``,
``virtual_rows``, ``vectors``, ``labels``, ``histograms``, ``drafts``,
``attributes`` with its ``classifier``; then ``games`` (who plays) and ``catalogue`` (what follows
from all records).
"""
