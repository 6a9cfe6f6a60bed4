"""The columns of a table of ratings: their names in headers, and their contents."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from secure_fedrec.data.files.contents import Contents

_TYPE: Final = re.compile(r"(.+):(token|float|token_seq|float_seq)")
"""A name with its type, as RecBole's files have it."""


Holds = Callable[[Contents, int], bool]
"""Whether a column may be of a kind by what stands in it, and by the rank of its name."""


def _anything(column: Contents, rank: int) -> bool:
    del column, rank
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of column.

    Args:
        what: the setting that names it.
        names: what headers call it, without capitals and signs, the likeliest first.
        sure: how many of these, from the first, certainly make a line a header.
        holds: whether a column's contents are of the kind; where they are not, its name misleads.
        implicit: whether a value above 0 only says that something happened.
        sole: whether a column is of the kind only if no other could be.
    """

    what: str
    names: Sequence["re.Pattern[str]"]
    sure: int = 1
    holds: Holds = _anything
    implicit: bool = False
    sole: bool = False

    def rank(self, name: str) -> int | None:
        """Rank of a name, 0 for the likeliest; None if it is not one of these."""
        plain = plain_name(name)
        found = (at for at, each in enumerate(self.names) if each.fullmatch(plain))
        return next(found, None)


def _names(*patterns: str) -> tuple["re.Pattern[str]", ...]:
    return tuple(map(re.compile, patterns))


_SOMEBODY: Final = (
    "user|client|customer|reviewer|member|student|profile|reader|listener|viewer|person|player|"
    "buyer|rater|learner|subscriber"
)
_SOMETIME: Final = "visitor|session|account|household|device"
"""Names that mean the user if no other column does."""
_THING: Final = (
    "item|movie|product|book|artist|song|track|anime|game|joke|business|article|news|recipe|exer|"
    "video|venue|place|poi|location|restaurant|hotel|course|beer|app|site|page|story|film|show|"
    "podcast|album|photo|image|wine|dish|shop|store|offer|ad|job|paper|repo|repository|clip"
)
_ID: Final = "id|uid|key|number|no|num|code|hash|uuid|idx|index"
_BEFORE: Final = f"(?:my|review|{_SOMEBODY}|{_THING})?"
_DONE: Final = (
    "click(?:ed)?|liked?|follow(?:ed)?|purchased?|buy|bought|view(?:ed)?|watch(?:ed)?|favou?rited?|"
    "bookmark(?:ed)?|collect(?:ed)?|read|played|listened|interacted|label|recommend(?:ed)?"
)
_ELSE: Final = re.compile(
    "(?:session|order|transaction|review|category|genre|country|city|region|group|friend|device|"
    "tag|type|brand|event|request|query|invoice|basket|cart|visit|comment|parent|seller|vendor|"
    "author|language|status|state|log|row|rating|impression|department|cluster)id"
)
"""An id of something that is rarely what clients rate."""

_ELSEWHEN: Final = re.compile(
    "release|birth|sign(?:ed)?up|crawl|scrap|publi|upload|deliver|ship|updat|expir|regist|join|"
    "modif|launch|premiere|duedate|lastlogin|(?:first|last)seen|download|retriev|^air|account|"
    f"(?:{_SOMEBODY}|{_THING})(?:creat|added|since)|founded|member"
)
"""A time other than that of the rating."""

KINDS: Final = (
    Kind(
        what="user",
        names=_names(
            f"users?(?:{_ID})?|uid",
            f"(?:{_SOMEBODY})s?(?:{_ID})?",
            f"(?:review)?(?:{_SOMEBODY})name",
            f"(?:{_SOMETIME})(?:{_ID})?",
        ),
        sure=2,
    ),
    Kind(
        what="item",
        names=_names(
            f"items?(?:{_ID})?|iid",
            f"(?:{_THING})s?(?:{_ID})?|isbn|(?:parent)?asin|sku",
            f".+(?:{_THING})id",
        ),
        sure=2,
    ),
    Kind(what="item", names=_names(".+id"), sole=True),
    Kind(
        what="rating",
        names=_names(
            "(?:rating|score|star|overall)s?",
            f"{_BEFORE}(?:rating|score|stars?|overall)s?",
            "value|preference|grade|vote|thumbs?",
        ),
    ),
    Kind(
        what="rating",
        names=_names(
            "weight|counts?|(?:n|num)?plays|(?:play|listen|click|view|visit)counts?|clicks|views|"
            "listens|visits|purchases|quantity|qty|freq(?:uency)?|hours(?:played)?",
        ),
        holds=lambda column, _: column.numbers is not None,
        implicit=True,
    ),
    Kind(
        what="rating",
        names=_names(f"(?:is|has)?(?:{_DONE})"),
        holds=lambda column, _: column.flags,
        implicit=True,
    ),
    Kind(
        what="time",
        names=_names(
            "time|timestamp|ts|datetime|unix(?:review)?time|unix(?:time)?stamp",
            ".*timestamp.*|.*unixtime|.*time(?:ms|s|sec|utc|gmt)?|createdat",
            ".*date|dateadded|day",
        ),
        # A few rows are not evidence against a column's name.
        holds=lambda column, rank: column.times or (rank == 0 and column.whole and column.short),
    ),
)
"""The kinds of columns, in the order in which they are looked for."""

ROLES: Final = tuple(dict.fromkeys(kind.what for kind in KINDS))
"""The settings that name columns."""


def plain_name(name: str) -> str:
    """A header's name without its type and what people write differently."""
    name = untyped(name)
    return "".join(each for each in name.lower() if each.isalnum())


def untyped(name: str) -> str:
    """A header's name without the type that RecBole's files write behind it."""
    typed = _TYPE.fullmatch(name.strip())
    return typed[1] if typed else name


def is_name(name: str) -> bool:
    """Whether a text is certainly a header's name."""
    kinds = [kind for kind in KINDS if kind.what != "time" and not kind.implicit]
    sure = any(kind.rank(name) in range(kind.sure) for kind in kinds)
    return sure or _TYPE.fullmatch(name.strip()) is not None


def named_so(what: str, names: Iterable[str]) -> list[tuple[str, Kind, int]]:
    """The columns that may be of a role by their names, with kind and rank, the likeliest first."""
    kinds = [kind for kind in KINDS if kind.what == what]
    found = [
        (order, rank, name, kind)
        for order, kind in enumerate(kinds)
        for name in names
        if (rank := kind.rank(name)) is not None
    ]
    return [(name, kind, rank) for _, rank, name, kind in sorted(found, key=lambda one: one[:2])]


def of_something_else(what: str, name: str) -> bool:
    """Whether a name means another time than the rating's, or another id than an item's."""
    plain = plain_name(name)
    if what == "time":
        return _ELSEWHEN.search(plain) is not None
    return _ELSE.search(plain) is not None


def counts_only(name: object) -> bool:
    """Whether the name of a column of ratings means that it only says that something happened."""
    found = named_so("rating", [str(name)])
    return bool(found) and found[0][1].implicit
