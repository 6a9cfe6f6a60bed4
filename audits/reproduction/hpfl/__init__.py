"""HPFL's tables 2 to 5 and the users' characteristics of its figures 5 and 6."""

from typing import Final

from audits.reproduction.entry import DATA, METHOD, Entry, Option

ENTRY: Final = Entry(
    seeds="5",
    options=(
        Option(
            "start",
            "of training: xavier (the paper's) or identity (its code's); may be repeated "
            "(default: both)",
        ),
        Option("form", "of the user model: paper (default) or published", once=True),
        DATA,
        METHOD,
        Option(
            "variants",
            "in place of the tables, choices that they do not vary, on one seed",
            flag=True,
            apart=True,
        ),
    ),
    arrays=(),
)
