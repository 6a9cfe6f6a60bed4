"""How claims are judged, one module per kind of claim.

Reading order: ``scored`` (what judging yields), ``sets`` (rated and other sets), ``ratings``
(ratings, senders and single rows), ``vectors``, ``clients`` (labels and histograms), ``drafts``,
``attributes`` with its ``classifier``.
"""
