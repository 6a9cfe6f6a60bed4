"""Fed3CR's tables 2 (methods), 3 (parts) and 4 (transfers), figures 6 to 9, under two protocols.

Reading order: ``paper``, ``studies``, ``choice`` (which setting is reported), ``tables``,
``figures``, ``drawing``, ``command``.
"""

from typing import Final

from audits.reproduction.entry import DATA, FIGURE, METHOD, Entry, Option

ENTRY: Final = Entry(
    seeds="1, on ml-100k 3 or 5,",
    options=(
        FIGURE,
        Option(
            "protocol", "of the evaluation: clean or published; may be repeated (default: both)"
        ),
        DATA,
        METHOD,
    ),
)
