"""Public knowledge about uploads and sums: the traits of the stack and of the algorithm.

Attacks on sums need to know what was added up: whether virtual rows are still inside, whether
uploads can be read as well as the sum, whether the counts are exact. All of it is public, as
``secure_fedrec.traits``; no layer is treated by name. Asking for a trait that was not stated raises
an error.

The blocks of an upload lie one below the other in one table; which rows are items is public.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from secure_fedrec.errors import NOT_STATED, UnstatedFactError
from secure_fedrec.traits import TRAITS, RowTraits
from secure_fedrec.wire import Transcript, View


class UnknownTraitError(UnstatedFactError):
    """A transcript does not state a trait, or states an unknown value."""


_OF_ROWS = frozenset(each.name for each in fields(RowTraits))


class _Stated:
    """Whether a trait has one of some values."""

    def __init__(self, trait: str, *values: str) -> None:
        self._trait, self._values = trait, values

    def __get__(self, known: "Knowledge", _: type) -> bool:
        return known.stated(self._trait) in self._values


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Stated traits; a property raises ``UnknownTraitError`` if its trait is not stated.

    Args:
        stack: traits of the stack, by name; see ``Traits``.
        rows: of the rows that the algorithm's clients send; see ``RowTraits``.
    """

    stack: Mapping[str, Any]
    rows: Mapping[str, Any]

    @classmethod
    def of(cls, view: View | Transcript) -> "Knowledge":
        """Read public knowledge."""
        stack, rows = (view.public.get(whose, {}) for whose in ("protection", "algorithm"))
        return cls(stack=stack.get("traits") or {}, rows=rows.get("traits") or {})

    virtual_rows = _Stated("virtual_rows", "summed", "taken-out")
    """Clients send virtual rows among the real ones."""

    sums_are_real = _Stated("virtual_rows", "none", "taken-out")
    """No virtual row is left in the aggregate."""

    hidden = _Stated("uploads", "shares", "dense")
    """Uploads cannot be read and cannot be compared with the aggregate."""

    dense = _Stated("uploads", "dense")
    """Every client sends the same public rows, so row numbers tell nothing about it."""

    @property
    def says_hidden(self) -> bool:
        """The stack states that uploads cannot be read; words may show that one can be."""
        return bool(self.stack.get("uploads", "rows") != "rows")

    @property
    def says_noised(self) -> bool:
        """The stack states that noise is added to the sums."""
        return bool(self.stack.get("noise", "none") != "none")

    @property
    def says_dense(self) -> bool:
        """The stack states that every client sends the same rows."""
        return bool(self.stack.get("uploads") == "dense")

    @property
    def says_rated_rows(self) -> bool:
        """The traits state that a client's rows are exactly its rated items."""
        stated = (*(self.stack.get(name) for name in ("virtual_rows", "reports")),)
        return (*stated, self.rows.get("row_sets")) == ("none", "all", "rated")

    exact = _Stated("noise", "none")
    """Counts are the true numbers of ratings, no noise is added to them."""

    every_row = _Stated("row_sets", "rated")
    """Clients have a row for each rated item and for no other item, in every round."""

    rated_always = _Stated("row_sets", "rated", "drawn")
    """Clients have a row for each rated item, in every round."""

    reports_all = _Stated("reports", "all")
    """A client sends all of its rows in every round."""

    @property
    def constant(self) -> bool:
        """A client that takes part uploads each of its rated items, every time."""
        return self.reports_all and self.every_row

    rated_only = _Stated("row_sets", "rated", "some")
    """A row that is not virtual is of an item that its client rated."""

    rated_too = _Stated("row_sets", "rated", "drawn", "others")
    """A client's rows include those of its rated items, in every round."""

    item_rows = _Stated("rows", "items")
    """Rows of the shared table are items."""

    factorized = _Stated("form", "factorized")
    """Rows are gradients of a matrix factorization."""

    @property
    def trained_rows(self) -> bool:
        """Rows are changes by training on rated items and on sampled items."""
        return self.item_rows and self.stated("form") in ("scored", "change")

    @property
    def scored_rows(self) -> bool:
        """Those changes are multiples of a vector of the client."""
        return self.item_rows and self.stated("form") == "scored"

    @property
    def vectors(self) -> bool:
        """Rows are the clients' vectors of items, and the public table is their sum."""
        return self.item_rows and self.stated("form") == "vectors"

    @property
    def denoisers(self) -> tuple[int, ...]:
        """Client number of each denoiser."""
        numbers = self.stack.get("denoisers")
        if numbers is None:
            raise UnknownTraitError(f"the protection {NOT_STATED} its trait 'denoisers'")
        return tuple(numbers)

    @property
    def summed_in_shares(self) -> bool:
        """The denoisers' messages add up to one sum over all clients, without their own rows."""
        return self.stated("denoising") == "shares" and not self.hidden

    @property
    def ratio(self) -> float | None:
        """Virtual rows per rated item; None if their number does not follow a known rule."""
        ratio = self.stack.get("ratio")
        return None if ratio is None else float(ratio)

    def stated(self, name: str) -> str:
        """The value of a trait, of the stack or of the algorithm's rows."""
        of_rows = name in _OF_ROWS
        whose, traits = ("algorithm", self.rows) if of_rows else ("protection", self.stack)
        value = traits.get(name)
        if value is None:
            raise UnknownTraitError(f"the {whose} {NOT_STATED} its trait {name!r}")
        if value not in TRAITS[name]:
            raise UnknownTraitError(
                f"the {whose} states a trait that is not known: {name} = {value!r}"
            )
        return str(value)


def item_view(view: View) -> View | None:
    """The view of the rows that are items; None without such rows.

    Raises:
        UnstatedFactError: rows are items, but their number is not stated.
    """
    if "n_items" not in view.public and not Knowledge.of(view).item_rows:
        return None
    _ = view.public["n_items"]  # raises if it is not stated
    # A transcript with a single table states only its number of items.
    return view if "blocks" not in view.public else view.of_block("items")


def flat_view(view: View) -> View | None:
    """The view of the flat parameters; None where uploads have none."""
    return view if "blocks" not in view.public else view.of_block("flat")


def rows_view(view: View) -> View | None:
    """The view of the rows that clients have some of; None where uploads have none."""
    if "blocks" not in view.public:
        return view
    return view.of_block("items") or view.of_block("rows")
