"""Reproductions of papers: their numbers beside ours, which come from studies of this toolkit.

A paper is a file of ``audits/papers``, which has what was printed and the settings that are pinned,
and a module or package of the same name here, whose ``reproduce`` states which studies it needs,
compares their results with the printed numbers, and draws. Everything else is common to all papers:
``papers`` (which there are, and their options), ``progress`` (studies that are found or made),
``engine`` (options and results), ``ratings``, ``numbers`` (over seeds, and as text) and
``projection`` (t-SNE).
"""
