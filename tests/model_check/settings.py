"""What a model of masking is about: its parameters, and tables of what its clients accept.

A set of clients is an int: bit p is the client at ring place p. Every table is filled by asking the
clients' own predicates, once for each set, so that a search looks up what a client would say.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import Any, Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking import MaskingConfig
from secure_fedrec.protection.masking.messages.topology import (
    NO_BEACON,
    Topology,
    enough_clients,
    is_quorum,
    share_due,
)
from secure_fedrec.protection.session.statement import NO_STATEMENT

__all__ = ["RULES", "Setting", "Tables", "mask_of", "members", "settings_of", "tables_of"]

RULES: Final = (
    "equal sharers",  # a share of a self mask only for who masked by the same sharers
    "windows",  # every k/2 places of the ring keep survivors
    "quorum",  # signatures of a quorum before anything is revealed
    "committee",  # of members of the committee alone
    "one reveal",  # one answer per round, one of two shares per neighbour
    "survivors",  # at least min_survivors in a sum
    "sharers",  # at least min_survivors that shared
    "survivors shared",  # no survivor that did not share
    "overlap",  # a configuration has min_survivors so large that two sums share an honest client
    "live neighbours",  # t neighbours at least that shared, and that survive
)
"""Names of the rules that can be switched off."""

NONE, MASK, SELF = 0, 1, 2
"""Codes of the share that is due (``topology.share_due``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Parameters of a round, as in ``MaskingConfig``; the degree is None for the complete graph."""

    n: int
    degree: int | None
    threshold: int
    corrupt: int
    window: int | None
    min_survivors: int
    quorum: int
    committee: int | None = None
    adversary: str = "active"

    def config(
        self,
        *,
        length: int = 1,
        layout_hash: bytes = bytes(32),
        statement: bytes = NO_STATEMENT,
    ) -> MaskingConfig:
        """The configuration that clients of the round are shown.

        Raises:
            ConfigError: no round has such parameters.
        """
        return MaskingConfig(
            clients=self.n,
            bits=20,
            length=length,
            layout_hash=layout_hash,
            degree=self.degree,
            threshold=self.threshold,
            min_survivors=self.min_survivors,
            quorum=self.quorum,
            committee=self.committee,
            corrupt_clients=self.corrupt,
            window_least=self.window,
            adversary="active" if self.adversary == "active" else "curious",
            statement=statement,
        )

    @property
    def name(self) -> str:
        """As it is printed: n, k, t, c, window, min_survivors, quorum, committee."""
        degree = self.n - 1 if self.degree is None else self.degree
        window = "-" if self.window is None else str(self.window)
        counts = f"{self.threshold:>2} {self.corrupt:>2} {window:>6}"
        signers = f"{self.quorum:>6} {self.committee or '-':>4}"
        return f"{self.n:>2} {degree:>2} {counts} {self.min_survivors:>4} {signers}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tables:
    """What clients accept, and which corrupt sets the parameters reckon with.

    Args:
        setting: the parameters.
        order: int64[n], place in the cohort of the client at each ring place.
        near: int64[n], neighbours of each ring place.
        survivors: bool[2^n], whether a client accepts these survivors for its graph.
        sharers: bool[2^n], whether so many sharers are enough.
        live: bool[n, 2^n], whether a client at a place has enough neighbours among these.
        agreed: bool[n + 1], whether so many clients that sign one statement can show a quorum.
        committees: int64[j, 2], each committee that can be drawn, and whose signatures count then;
            all clients where there is none.
        due: int64[2, 2], code of the share due for a neighbour, by whether it survives and whether
            it masked by the same sharers.
        corrupt: int64[m], the corrupt sets: at most c clients, and on a sparse graph c_w in every
            window, fewer than t among the neighbours of each honest client. (On the complete graph
            t > c is the configuration's to see to.)
        fakes: whether a survivor may be one that did not share.
        repeats: whether a client answers a second time.
    """

    setting: Setting
    order: IntArray
    near: IntArray
    survivors: BoolArray
    sharers: BoolArray
    live: BoolArray
    agreed: BoolArray
    committees: IntArray
    due: IntArray
    corrupt: IntArray
    fakes: bool
    repeats: bool


def members(mask: int) -> list[int]:
    """Places of a set, ascending."""
    return [place for place in range(mask.bit_length()) if mask >> place & 1]


def mask_of(places: Iterable[int] | IntArray) -> int:
    """The set of some places."""
    return int(sum(1 << int(place) for place in places))


def tables_of(setting: Setting, without: frozenset[str] = frozenset()) -> Tables:
    """Ask the clients' predicates about every set.

    Args:
        setting: the parameters.
        without: rules that are switched off, of ``RULES``.
    """
    assert without <= set(RULES)
    topology = _topology(setting.n, setting.degree)
    order = _order(topology, setting.n)
    ring = np.argsort(order)
    near = np.array(
        [mask_of(ring[topology.neighbours(place)]) for place in order.tolist()], dtype=np.int64
    )
    survivors = _survivors(setting)
    if "windows" in without:
        survivors = _enough(setting)
    if "survivors" in without:  # what is left of the check is the windows
        survivors = _survivors(replace(setting, min_survivors=0))
    return Tables(
        setting=setting,
        order=order,
        near=near,
        survivors=survivors,
        sharers=_enough(setting) | ("sharers" in without),
        live=_live(setting.n, setting.degree, setting.threshold) | ("live neighbours" in without),
        agreed=_agreed(setting, unchecked="quorum" in without),
        committees=_committees(setting, topology, unchecked="committee" in without),
        due=_due(equal_sharers="equal sharers" not in without),
        corrupt=_corrupt_sets(setting, near),
        fakes="survivors shared" in without,
        repeats="one reveal" in without,
    )


def settings_of(
    clients: range, *, corrupt: range, complete: bool = False, committees: bool = False
) -> list[Setting]:
    """Every parameter set that ``MaskingConfig`` takes against an active server.

    Quorum and ``min_survivors`` are the least that it takes, found by asking it: a client that
    accepts a round with more accepts one with fewer. Of committees it is each size, with each
    quorum: how many corrupt members they withstand is no matter of the configuration.
    """
    found = []
    for n in clients:
        for degree in [None] if complete else range(2, n - 1, 2):
            k = n - 1 if degree is None else degree
            for threshold in range(2, k + 1):
                for c in corrupt:
                    for window in [None] if degree is None else range(1, k // 2 + 1):
                        setting = Setting(
                            n=n,
                            degree=degree,
                            threshold=threshold,
                            corrupt=c,
                            window=window,
                            min_survivors=n,
                            quorum=n,
                        )
                        if not _is_taken(setting):
                            continue
                        least = _least(_least(setting, "quorum"), "min_survivors")
                        found += _with_committees(least) if committees else [least]
    return found


def _with_committees(setting: Setting) -> list[Setting]:
    sizes = range(1, setting.n)
    several = (
        replace(setting, committee=size, quorum=quorum)
        for size in sizes
        for quorum in range(1, size + 1)
    )
    return [each for each in several if _is_taken(each)]


def _is_taken(setting: Setting) -> bool:
    try:
        setting.config()
    except ConfigError:
        return False
    return True


def _least(setting: Setting, key: str) -> Setting:
    """The setting with one of its counts as small as a configuration takes."""
    counts: Iterable[dict[str, Any]] = ({key: count} for count in range(setting.n + 1))
    return next(each for count in counts if _is_taken(each := replace(setting, **count)))


def _accepts(check: Callable[..., object], *arguments: object) -> bool:
    try:
        check(*arguments)
    except ProtocolError:
        return False
    return True


def _topology(n: int, degree: int | None, **changes: Any) -> Topology:
    """A graph whose configuration is changed where a rule alone is asked about."""
    k = n - 1 if degree is None else degree
    setting = Setting(
        n=n,
        degree=degree,
        threshold=2 if k > 1 else 1,
        corrupt=0,
        window=None if degree is None else 1,
        min_survivors=n,
        quorum=n // 2 + 1,
    )
    config = setting.config()
    for key, value in changes.items():
        object.__setattr__(config, key, value)
    return Topology(config, NO_BEACON)


def _order(topology: Topology, n: int) -> IntArray:
    """int64[n], place in the cohort of the client at each ring place."""
    return np.arange(n, dtype=np.int64) if topology._order is None else topology._order


def _sets(n: int, order: IntArray) -> BoolArray:
    """bool[2^n, n], the marks of every set, by place in the cohort."""
    marks = np.zeros((2**n, n), dtype=np.bool_)
    marks[:, order] = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    return marks


def _survivors(setting: Setting) -> BoolArray:
    changes = {"min_survivors": setting.min_survivors, "window_least": setting.window}
    topology = _topology(setting.n, setting.degree, **changes)
    sets = _sets(setting.n, _order(topology, setting.n))
    return np.array([_accepts(topology.require_survivors, marks) for marks in sets])


def _enough(setting: Setting) -> BoolArray:
    sets = _sets(setting.n, np.arange(setting.n))
    return np.array([enough_clients(marks, setting.min_survivors) for marks in sets])


@lru_cache(maxsize=64)
def _live(n: int, degree: int | None, threshold: int) -> BoolArray:
    topology = _topology(n, degree, threshold=threshold)
    order = _order(topology, n)
    sets = _sets(n, order)
    return np.array(
        [
            [_accepts(topology.require_live, place, place, marks) for marks in sets]
            for place in order.tolist()
        ]
    )


def _agreed(setting: Setting, *, unchecked: bool) -> BoolArray:
    shown = [is_quorum(count, setting.quorum) for count in range(setting.n + 1)]
    return np.array([unchecked or any(shown[: count + 1]) for count in range(setting.n + 1)])


def _committees(setting: Setting, topology: Topology, *, unchecked: bool) -> IntArray:
    """Every committee, and who of all clients signs, as the clients' own graph says."""
    n, size = setting.n, setting.committee
    everybody = np.ones(n, dtype=np.bool_)
    if size is None:
        return np.array([[2**n - 1, 2**n - 1]], dtype=np.int64)
    order, found = _order(topology, n), []
    for places in combinations(range(n), size):
        topology._committee = np.isin(np.arange(n), order[list(places)])
        signers = everybody if unchecked else topology.signers(everybody)
        found.append((mask_of(places), mask_of(np.flatnonzero(signers[order]))))
    return np.array(found, dtype=np.int64)


def _due(*, equal_sharers: bool) -> IntArray:
    codes = {None: NONE, "mask": MASK, "self": SELF}
    return np.array(
        [
            [
                codes[share_due(survives=survives, same_sharers=same or not equal_sharers)]
                for same in (False, True)
            ]
            for survives in (False, True)
        ],
        dtype=np.int64,
    )


def _corrupt_sets(setting: Setting, near: IntArray) -> IntArray:
    """The corrupt sets of which no event of the parameters' list is true."""
    n, half = setting.n, 0 if setting.degree is None else setting.degree // 2
    windows = [mask_of((start + step) % n for step in range(half)) for start in range(n)]
    found = []
    for corrupt in range(2**n):
        count = corrupt.bit_count()
        if count > setting.corrupt:
            continue
        if setting.window is not None and any(
            (corrupt & window).bit_count() >= setting.window for window in windows
        ):
            continue
        if setting.degree is not None and any(
            (corrupt & int(near[place])).bit_count() >= setting.threshold
            for place in members(2**n - 1 & ~corrupt)
        ):
            continue
        found.append(corrupt)
    return np.array(found, dtype=np.int64)
