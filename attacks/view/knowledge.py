"""What the public settings of a protocol say about its uploads and its sums.

Attacks on sums need to know what was added up: whether virtual rows are still inside, whether the
uploads can be read beside the sum, whether the counts are exact. All of it is public.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from secure_fedrec.wire import View

__all__ = ["Protocol"]

_CLOAKS = frozenset({"virtual-ratings", "randomized-response"})
_TAKE_OUT = frozenset({"denoisers", "linkage-hardened", "shared-upload"})
_DENSE = frozenset({"masking", "paillier"})
_HIDING = _DENSE | {"shared-upload"}
_NOISE = frozenset({"skellam", "gaussian", "laplace", "local-dp"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """A protocol as everybody knows it.

    Args:
        virtual_rows: clients send virtual rows among the real ones.
        sums_are_real: no virtual row is left in the aggregate.
        hidden: uploads cannot be read; nothing equals a row of the aggregate.
        dense: every client sends the same public rows, so row numbers tell nothing about it.
        exact: counts are the true numbers of ratings, no noise is added to them.
        constant: a client that takes part uploads each of its rated items, every time.
        denoisers: client number of each denoiser.
        summed_in_shares: what the denoisers send are additive shares of one sum over all clients,
            and no row of their own is in it.
    """

    virtual_rows: bool
    sums_are_real: bool
    hidden: bool
    dense: bool
    exact: bool
    constant: bool
    denoisers: tuple[int, ...]
    summed_in_shares: bool = False

    @classmethod
    def of(cls, view: View) -> "Protocol":
        """Read the public settings."""
        settings: Mapping[str, Any] = view.public["protection"]
        layers = _names(settings)
        return cls(
            virtual_rows=bool(layers & _CLOAKS),
            sums_are_real=not layers & _CLOAKS or bool(layers & _TAKE_OUT),
            hidden=bool(layers & _HIDING),
            dense=bool(layers & _DENSE),
            exact=not layers & _NOISE,
            constant="randomized-response" not in layers,
            denoisers=tuple(
                client
                for layer in settings.values()
                if isinstance(layer, Mapping)
                for client in layer.get("clients", ())
            ),
            summed_in_shares="linkage-hardened" in layers,
        )


def _names(settings: Mapping[str, Any]) -> frozenset[str]:
    """Names of all layers, those described inside the settings of another one included."""
    names = set(settings.get("layers", ()))
    queue = [value for value in settings.values() if isinstance(value, Mapping)]
    for one in queue:  # grows while it is walked
        inner = {key: value for key, value in one.items() if isinstance(value, Mapping)}
        names |= inner.keys()
        queue.extend(inner.values())
    return frozenset(names)
