"""How claims are judged, one module per kind, with the claim and its scorer.

Reading order: ``scales``, ``measures``, ``figures.toml`` (how a value is read, what the record of a
figure says, and all records), ``truth``, ``scored`` and ``chance`` (what a claim is judged by, what
judging yields, and what chance gives), ``sets`` and ``rated_sets``, ``ratings``, ``links``,
``virtual_rows``, ``vectors``, ``profiles``, ``drafts``, ``attributes``; then ``games`` (who plays).
"""
