"""FedDMF's figures 5 to 8, and beside them federations of several organisations."""

from typing import Final

from audits.reproduction.entry import FIGURE, Entry

ENTRY: Final = Entry(
    seeds="3",
    options=(FIGURE,),
)
