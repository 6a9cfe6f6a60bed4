"""FedRec++'s tables 2 (rating error) and 3 (cost), and its figure 2 (fewer clients in a round)."""

from typing import Final

from audits.reproduction.entry import DATA, FIGURE, Entry

ENTRY: Final = Entry(
    seeds="5 folds",
    options=(FIGURE, DATA),
)
