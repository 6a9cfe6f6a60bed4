"""Reproducing papers: their numbers beside ours, each of ours from a study of this toolkit.

A paper is a file of ``audits/papers``, which has what was printed and the settings that are pinned,
and a module or package of the same name here, whose ``reproduce`` says which studies it takes, what
they come to beside the printed numbers, and what is drawn. All else is done for all papers alike:
``papers`` (which there are, and their options), ``progress`` (studies that are found or made),
``engine`` (what is asked for, and the result), ``ratings``, ``numbers`` (over seeds, and as text)
and ``projection`` (t-SNE).
"""
