"""Traits: public facts about uploads and sums, independent of layers and algorithm.

Every layer states how it changes them, every algorithm what its rows are, and both travel in the
public knowledge of a transcript. Attacks reason from traits alone: the name of a layer tells them
nothing. A trait that is not stated is unknown, and nothing is concluded from it: neither that an
upload can be read nor that it cannot.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from secure_fedrec.errors import ConfigError

TRAITS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "virtual_rows": ("none", "summed", "taken-out"),
        "reports": ("all", "some"),
        "uploads": ("rows", "shares", "dense"),
        "senders": ("named", "anonymous"),
        "noise": ("none", "added"),
        "denoising": ("none", "groups", "shares"),
        "rows": ("items", "other"),
        "row_sets": ("rated", "some", "drawn", "others"),
        "form": ("factorized", "scored", "change", "vectors", "other"),
    }
)
"""Allowed values of the traits that have a fixed list of them, by name."""


def _require_known(stated: Any) -> None:
    for each in fields(stated):
        value, allowed = getattr(stated, each.name), TRAITS.get(each.name)
        if allowed is not None and value is not None and value not in allowed:
            raise ConfigError(f"traits.{each.name}", value, "is not a value of this trait", allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """How a layer leaves uploads and sums; None where they are as before it.

    Args:
        virtual_rows: whether clients send rows of items that they have not rated: "none", "summed"
            with the others, or "taken-out" of the sum again.
        reports: whether a client sends "all" of its rows each time, or "some", at random.
        uploads: what their receivers read: "rows", "shares" (row numbers, and words that are
            uniform except for a holder of all shares) or "dense" (the same public row numbers from
            all clients, and hidden words).
        senders: whether receivers know the sender of a message, "named" or "anonymous".
        noise: whether any is "added" to sums and counts, or "none".
        denoising: what denoisers send the server: "none", sums over "groups" of clients less their
            own rows, or additive "shares" of one sum over all clients.
        denoisers: client number of each denoiser.
        ratio: virtual rows per rated item, rounded down and capped by the unrated items; None, if
            rows were added without such a rule.

    Raises:
        ConfigError: a value that no trait has.
    """

    virtual_rows: str | None
    reports: str | None
    uploads: str | None
    noise: str | None
    denoising: str | None
    senders: str | None = None
    denoisers: tuple[int, ...] | None = None
    ratio: float | None = None

    def __post_init__(self) -> None:
        _require_known(self)

    def over(self, before: "Traits") -> "Traits":
        """The traits after this layer, given those before it."""
        later = {name: value for name, value in asdict(self).items() if value is not None}
        if before.virtual_rows == "none" and self.virtual_rows == "taken-out":
            del later["virtual_rows"]  # there are none to take out
        return Traits(**{**asdict(before), **later})


AS_BEFORE = Traits(virtual_rows=None, reports=None, uploads=None, noise=None, denoising=None)
"""Traits of a layer that does not change anything."""

BARE = Traits(
    virtual_rows="none",
    reports="all",
    uploads="rows",
    senders="named",
    noise="none",
    denoising="none",
    denoisers=(),
)
"""Traits of uploads that are sent to the server in the clear."""

HIDDEN = replace(BARE, uploads="dense")
"""Traits of named uploads that the server cannot read, as under masks; it has their sums."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTraits:
    """Public facts about the rows that an algorithm's clients send.

    Args:
        rows: what the rows of the shared table stand for, "items" or anything "other".
        row_sets: of which items a client sends rows in a round it takes part in: of exactly its
            "rated" ones, every time; of "some" of them; of its rated ones and of some "drawn" anew,
            every time; or of any "others" as well.
        form: what a row is: "factorized", -e U + lambda V for a rating's error e, a vector U of the
            client, the public row V and the public ``regularization`` lambda, noise apart;
            "scored", the change of V by training on rated items and on others that are drawn, a
            multiple of the client's score vector beside a decay and weaker pulls; a "change" by
            such training, of whatever direction; the client's own "vectors" of the items, and
            the public table is their sum; or any "other".

    Raises:
        ConfigError: a value that no trait has.
    """

    rows: str
    row_sets: str
    form: str

    def __post_init__(self) -> None:
        _require_known(self)


OTHER_ROWS = RowTraits(rows="other", row_sets="others", form="other")
"""Traits of an algorithm whose rows are parameters, or belong to attributes."""
