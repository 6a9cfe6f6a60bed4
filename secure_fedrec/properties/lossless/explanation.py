"""What a difference is, in terms of clients: whose rows, and what became of them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

_SAID = {"twice": "counted twice", "late": "of the round before", "zeroed": "zeros"}
_LISTED = 8
"""Most clients or items that words name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a difference is exactly, integer by integer.

    Args:
        kind: of what was right as it entered "missing", "twice", "late" (of the round before) or
            "left in" (virtual rows); of rows that differ where they enter "doubled", "zeroed",
            "late", "swapped" or "another's".
        clients: whose rows; of several, all of them together.
        items: of the rows that are meant, of vectors their places in the plain bag; None for all.
        part: "rows"; "values" or "counts" where the other is right; "virtual rows"; "vectors".
        other: the client whose rows stand in their place ("another's").
        or_else: what explains the difference as exactly.
    """

    kind: str
    clients: tuple[int, ...]
    items: tuple[int, ...] | None = None
    part: str = "rows"
    other: int | None = None
    or_else: tuple["Explanation", ...] = ()

    def __str__(self) -> str:
        """Clients and kind, or one of several where the numbers do not say which."""
        each = (replace(self, or_else=()), *self.or_else)
        if len({replace(one, clients=()) for one in each}) == 1 < len(each):
            clients = [client for one in each for client in one.clients]
            return self._said(f"the {{}} of one of clients {_listed(clients)}")
        return ", or ".join(
            one._said(f"client {one.clients[0]}'s {{}}")
            if len(one.clients) == 1
            else one._said(f"the {{}} of clients {_listed(one.clients)}")
            for one in each
        )

    def _said(self, whose: str) -> str:
        items, part = self.items or (), self.part
        one = len(items) == len(self.clients) == 1 and part.endswith(("rows", "vectors"))
        place = "" if part == "vectors" else f" of item{'s' * (len(items) > 1)}"
        place = "" if not items or (one and part == "vectors") else f"{place} {_listed(items)}"
        part = part.removesuffix("s") if one else part
        said = _SAID.get(self.kind, self.kind)
        said = "added twice" if self.kind == "twice" and part == "counts" else said
        said = said if self.other is None else f"client {self.other}'s"
        return f"{whose.format(part + place)} {'is' if one else 'are'} {said}"


def _listed(numbers: Sequence[int]) -> str:
    named = ", ".join(map(str, numbers[:_LISTED]))
    return named if len(numbers) <= _LISTED else f"{named} and {len(numbers) - _LISTED} more"
