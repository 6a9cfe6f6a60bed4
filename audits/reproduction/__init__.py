"""Reproducing papers: their numbers beside ours, each of ours from a study of this toolkit.

One package per paper, ``hpfl`` and ``furl``, with the same parts: ``paper`` (what was printed, and
the settings that are pinned), ``studies`` (what was run, or found in a folder of results),
``tables`` (the two side by side, with intervals), ``drawing`` (the figures) and ``command`` (all of
it in order). What they share is here: ``seeds``, ``progress``, ``projection`` and ``files``.
"""
