"""Reproducing papers: their numbers beside ours, each of ours from a study of this toolkit.

One package per paper, named as its file in ``audits/papers``, whose ``ENTRY`` says which options it
has (``entry``). They have the same parts: ``paper`` (what was printed, and the settings that are
pinned), ``studies`` (what was run, or found in a folder of results), ``tables`` (the two side by
side, with intervals), ``drawing`` (the figures) and ``command`` (all of it in order, in
``reproduce_NAME``). What they share is here: ``seeds``, ``parts``, ``progress``, ``ratings``,
``columns``, ``projection`` and ``files``.
"""
