"""What everybody knows of uploads and sums: the traits of the stack and of the algorithm.

Attacks on sums need to know what was added up: whether virtual rows are still inside, whether the
uploads can be read beside the sum, whether the counts are exact. All of it is public, in the words
of ``secure_fedrec.traits``; no layer is known by name. What was not stated is asked for in vain.

The blocks of an upload lie one below the other in one table; which rows are items is public.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secure_fedrec.errors import NOT_STATED, UnstatedFactError
from secure_fedrec.traits import TRAITS
from secure_fedrec.wire import Transcript, View


class UnknownTraitError(UnstatedFactError):
    """A transcript does not state a trait, or states it in words that nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knowledge:
    """Stated traits; every property raises ``UnknownTraitError`` where one that it needs is not.

    Args:
        stack: of the stack, by name; see ``Traits``.
        rows: of the rows that the algorithm's clients send; see ``RowTraits``.
    """

    stack: Mapping[str, Any]
    rows: Mapping[str, Any]

    @classmethod
    def of(cls, view: View | Transcript) -> "Knowledge":
        """Read public knowledge."""
        return cls(
            stack=view.public.get("protection", {}).get("traits") or {},
            rows=view.public.get("algorithm", {}).get("traits") or {},
        )

    @property
    def virtual_rows(self) -> bool:
        """Clients send virtual rows among the real ones."""
        return self._stack("virtual_rows") != "none"

    @property
    def sums_are_real(self) -> bool:
        """No virtual row is left in the aggregate."""
        return self._stack("virtual_rows") != "summed"

    @property
    def hidden(self) -> bool:
        """Uploads cannot be read; nothing equals a row of the aggregate."""
        return self._stack("uploads") != "rows"

    @property
    def dense(self) -> bool:
        """Every client sends the same public rows, so row numbers tell nothing about it."""
        return self._stack("uploads") == "dense"

    @property
    def says_hidden(self) -> bool:
        """It is stated that uploads cannot be read; whether one can is told by its words."""
        return bool(self.stack.get("uploads", "rows") != "rows")

    @property
    def says_noised(self) -> bool:
        """It is stated that noise is added to the sums."""
        return bool(self.stack.get("noise", "none") != "none")

    @property
    def says_dense(self) -> bool:
        """It is stated that every client sends the same rows."""
        return bool(self.stack.get("uploads") == "dense")

    @property
    def says_rated_rows(self) -> bool:
        """It is stated that a client's rows are its rated items, all of them and no others."""
        stated = (*(self.stack.get(name) for name in ("virtual_rows", "reports")),)
        return (*stated, self.rows.get("row_sets")) == ("none", "all", "rated")

    @property
    def exact(self) -> bool:
        """Counts are the true numbers of ratings, no noise is added to them."""
        return self._stack("noise") == "none"

    @property
    def every_row(self) -> bool:
        """The algorithm has a row for each rated item of a client and no other, every time."""
        return self._rows("row_sets") == "rated"

    @property
    def rated_always(self) -> bool:
        """The algorithm has a row for each rated item of a client, every time."""
        return self._rows("row_sets") in ("rated", "drawn")

    @property
    def reports_all(self) -> bool:
        """A client sends all of its rows, every time."""
        return self._stack("reports") == "all"

    @property
    def constant(self) -> bool:
        """A client that takes part uploads each of its rated items, every time."""
        return self.reports_all and self.every_row

    @property
    def rated_only(self) -> bool:
        """A row that is not virtual is of an item that its client rated."""
        return self._rows("row_sets") in ("rated", "some")

    @property
    def rated_too(self) -> bool:
        """Among a client's rows are those of its rated items, every time."""
        return self._rows("row_sets") != "some"

    @property
    def item_rows(self) -> bool:
        """Rows of the shared table are items."""
        return self._rows("rows") == "items"

    @property
    def factorized(self) -> bool:
        """Rows are gradients of a matrix factorization."""
        return self._rows("form") == "factorized"

    @property
    def trained_rows(self) -> bool:
        """Rows are changes by training on rated items and on others that are drawn."""
        return self.item_rows and self._rows("form") in ("scored", "change")

    @property
    def scored_rows(self) -> bool:
        """Those changes are multiples of a vector of the client."""
        return self.item_rows and self._rows("form") == "scored"

    @property
    def vectors(self) -> bool:
        """Rows are the clients' vectors of items, and the public table is their sum."""
        return self.item_rows and self._rows("form") == "vectors"

    @property
    def denoisers(self) -> tuple[int, ...]:
        """Client number of each denoiser."""
        numbers = self.stack.get("denoisers")
        if numbers is None:
            raise UnknownTraitError(f"the protection {NOT_STATED} its trait 'denoisers'")
        return tuple(numbers)

    @property
    def summed_in_shares(self) -> bool:
        """What the denoisers send adds up to one sum over all, and no row of their own is in it."""
        return self._stack("denoising") == "shares" and not self.hidden

    @property
    def ratio(self) -> float | None:
        """Virtual rows per rated item; None where their number follows no known rule."""
        ratio = self.stack.get("ratio")
        return None if ratio is None else float(ratio)

    def _stack(self, name: str) -> str:
        return _stated("protection", self.stack, name)

    def _rows(self, name: str) -> str:
        return _stated("algorithm", self.rows, name)


def _stated(whose: str, traits: Mapping[str, Any], name: str) -> str:
    value = traits.get(name)
    if value is None:
        raise UnknownTraitError(f"the {whose} {NOT_STATED} its trait {name!r}")
    if value not in TRAITS[name]:
        raise UnknownTraitError(f"the {whose} states a trait that is not known: {name} = {value!r}")
    return str(value)


def item_view(view: View) -> View | None:
    """The view of the rows that are items; None where no rows are.

    Raises:
        UnstatedFactError: rows are items, and nobody states how many there are.
    """
    if "n_items" not in view.public and not Knowledge.of(view).item_rows:
        return None
    _ = view.public["n_items"]  # known of rows that are items, or unknown
    # A transcript of one table says no more than how many items it has.
    return view if "blocks" not in view.public else view.of_block("items")


def flat_view(view: View) -> View | None:
    """The view of the flat parameters; None where uploads have none."""
    return view if "blocks" not in view.public else view.of_block("flat")
