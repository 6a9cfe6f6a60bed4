"""An explanation of a difference: the clients whose rows differ, and the cause."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_SAID = {"twice": "counted twice", "late": "of the round before", "zeroed": "zeros"}
_LISTED = 8
"""Most clients, items or causes that words name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """An event that changed some rows.

    Args:
        kind: for rows that entered the collector correctly "missing", "twice", "late" (of the round
            before) or "left in" (virtual rows); for rows that already differ there "doubled",
            "zeroed", "late", "swapped" or "another's".
        clients: the clients of these rows; several clients together.
        items: of these rows; for vectors their places in the plain bag; None for all.
        part: "rows"; "values" or "counts" if only these are wrong; "virtual rows"; "vectors".
        other: the client whose rows replace them ("another's").
    """

    kind: str
    clients: tuple[int, ...]
    items: tuple[int, ...] | None = None
    part: str = "rows"
    other: int | None = None

    def __str__(self) -> str:
        """Clients and kind."""
        if len(self.clients) == 1:
            return self.said(f"client {self.clients[0]}'s {{}}")
        return self.said(f"the {{}} of clients {_listed(self.clients)}")

    def said(self, whose: str) -> str:
        """The same sentence for other clients, with a placeholder for their part."""
        items, part = self.items or (), self.part
        one = len(items) == len(self.clients) == 1 and part.endswith(("rows", "vectors"))
        place = "" if part == "vectors" else f" of item{'s' * (len(items) > 1)}"
        place = "" if not items or (one and part == "vectors") else f"{place} {_listed(items)}"
        part = part.removesuffix("s") if one else part
        said = _SAID.get(self.kind, self.kind)
        said = "added twice" if self.kind == "twice" and part == "counts" else said
        said = said if self.other is None else f"client {self.other}'s"
        return f"{whose.format(part + place)} {'is' if one else 'are'} {said}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """An exact explanation of the whole difference of a round.

    Args:
        either: alternatives, each a set of causes that together make the difference. The numbers
            cannot distinguish them.
    """

    either: tuple[tuple[Cause, ...], ...]

    @classmethod
    def of(cls, found: Iterable[tuple[Cause, ...]]) -> "Explanation | None":
        """All alternatives that explain a difference; None if nothing does."""
        either = tuple(found)
        return cls(either) if either else None

    @property
    def certain(self) -> bool:
        """Whether this is the only exact explanation."""
        return len(self.either) == 1

    @property
    def clients(self) -> tuple[int, ...]:
        """All clients that the alternatives name, ascending; all right if ``certain``."""
        return tuple(sorted({each for cause in self._causes for each in cause.clients}))

    @property
    def kind(self) -> str:
        """The kinds of the causes, usually one; several are joined, as in "missing or twice"."""
        return (" or " if len(self.either) > 1 else " and ").join(self._kinds)

    @property
    def items(self) -> tuple[int, ...] | None:
        """Items of the affected rows, ascending; None if a cause affects all items."""
        of_each = [cause.items for cause in self._causes]
        found = {item for items in of_each for item in items or ()}
        return None if None in of_each else tuple(sorted(found))

    def agreeing(self, other: "Explanation | None") -> "Explanation | None":
        """The alternatives that name the same clients and kinds as another part's explanation."""
        theirs = () if other is None else map(_gist, other.either)
        known = set(theirs)
        return Explanation.of(causes for causes in self.either if _gist(causes) in known)

    @property
    def _causes(self) -> tuple[Cause, ...]:
        return tuple(cause for causes in self.either for cause in causes)

    @property
    def _kinds(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(cause.kind for cause in self._causes))

    def __str__(self) -> str:
        """Clients and kind, or "one of" several if the numbers cannot distinguish them."""
        causes = self._causes
        if len({replace(cause, clients=()) for cause in causes}) == 1 < len(self.either):
            return causes[0].said(f"the {{}} of one of clients {_listed(self.clients)}")
        return ", or ".join(map(_together, self.either))


def _gist(causes: tuple[Cause, ...]) -> frozenset[tuple[str, int | None, tuple[int, ...]]]:
    return frozenset((cause.kind, cause.other, cause.clients) for cause in causes)


def _together(causes: tuple[Cause, ...]) -> str:
    more = len(causes) - _LISTED
    said = ", and ".join(map(str, causes[:_LISTED]))
    return said if more <= 0 else f"{said}, and so on for {more} more"


def _listed(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_LISTED]))
    return named if len(numbers) <= _LISTED else f"{named} and {len(numbers) - _LISTED} more"
