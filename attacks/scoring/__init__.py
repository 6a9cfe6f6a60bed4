"""How claims are judged, one module per kind: the claim, the records of its figures, its scorer.

Reading order: ``scales`` and ``measures`` (how a value is read, and what the record of a figure
says), ``truth``, ``scored`` and ``chance`` (what a claim is judged by, what judging yields, and
what chance gives), ``sets`` and ``rated_sets``, ``ratings``, ``links``,
``virtual_rows``, ``vectors``, ``labels``, ``histograms``, ``drafts``, ``attributes`` with its
``classifier``; then ``games`` (who plays) and ``catalogue`` (what follows from all records).
"""
