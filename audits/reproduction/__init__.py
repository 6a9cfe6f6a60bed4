"""Reproducing a paper's tables: its numbers beside ours, each of ours from a run of this toolkit.

Reading order: ``paper`` (what was printed), ``studies`` (what was run, or found in a folder of
results), ``tables`` (the two side by side, with intervals), ``drawing`` (the figure).
"""
