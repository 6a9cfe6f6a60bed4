"""FURL's table 3, its learning curves (figure 3) and its user embeddings (figures 4 and 5).

Reading order: ``paper``, ``studies``, ``tables``, ``similarity``, ``lines`` (all of it as text),
``drawing``, ``command``.
"""

from typing import Final

from audits.reproduction.entry import Entry, Option

ENTRY: Final = Entry(
    seeds="3",
    options=(Option("task", "only this task; may be repeated"),),
    arrays=("user_embeddings", "user_labels", "majority_labels"),
)
