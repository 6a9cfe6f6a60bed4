"""Cases of losslessness with their right side: stacks, rings and algorithms, sound and broken.

Each broken one was found by attacking the property: it once passed, or somebody else was blamed.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.arrays import BoolArray, FloatArray, IntArray, RingArray
from secure_fedrec.data import RatingScale, RatingTable, SyntheticConfig, generate
from secure_fedrec.engines import CohortConfig
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import Scope, Started
from secure_fedrec.protection import (
    Denoisers,
    DenoisersConfig,
    DirectSum,
    RandomizedResponse,
    RandomizedResponseConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.protection.bags import BagShape, LayeredBags
from secure_fedrec.protection.base import Cloaked, LocalModel
from secure_fedrec.protection.denoisers import DenoisingSession
from secure_fedrec.protection.plain import DirectSession
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock, SetBlock, Upload
from secure_fedrec.wire import Wire

__all__ = ["CASES", "Case"]

LOSSLESS = "lossless"
REPORTS = "lossless relative to what it reports"
TAKING_PART = "lossless relative to those who take part"
STACK = "not lossless: the stack"
ALGORITHM = "not lossless: the algorithm"
NOTHING = "nothing compared"

CLIENTS, ITEMS, WIDTH = 8, 12, 2
CONFIG = PMFConfig(rank=WIDTH, learning_rate=0.1, init_scale=0.5)
STREAMS = Streams.from_seed(3)
SOME = generate(SyntheticConfig(clients=CLIENTS, items=ITEMS, mean_ratings=6, seed=1))
NONE = SOME.subset(np.zeros(len(SOME), dtype=bool))
EVERYTHING = RatingTable(
    name="everything",
    n_clients=CLIENTS,
    n_items=ITEMS,
    clients=np.repeat(np.arange(CLIENTS, dtype=np.int32), ITEMS),
    items=np.tile(np.arange(ITEMS, dtype=np.int32), CLIENTS),
    ratings=np.arange(CLIENTS * ITEMS, dtype=np.float64) % 5 + 1,
    scale=RatingScale(1.0, 5.0, 1.0),
    client_labels=np.arange(CLIENTS),
    item_labels=np.arange(ITEMS),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """Arguments of ``compare_runs`` and what it must say of them."""

    expected: str
    stack: Callable[[], Stack]
    algorithm: Callable[[], Callable[[], Any]] = lambda: lambda: PMF(CONFIG)
    ratings: RatingTable = SOME
    rounds: int = 3
    beside: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm(),
            "stack": self.stack(),
            "ratings": self.ratings,
            "streams": STREAMS,
            "rounds": self.rounds,
            **self.beside,
        }


# Stacks.


def direct(kind: type[DirectSum] = DirectSum, codec: FixedPoint | None = None, **parts: Any) -> Any:
    codec = FixedPoint() if codec is None else codec
    collector = kind(n_clients=CLIENTS, n_items=ITEMS, width=WIDTH, codec=codec)
    return Stack(codec=codec, cloak=None, collector=collector, n_clients=CLIENTS, **parts)


def denoised(
    kind: type[Denoisers] = Denoisers,
    cloak: Any = VirtualRatings,
    *,
    rho: float = 1.0,
    codec: Any = None,
) -> Stack:
    codec = FixedPoint() if codec is None else codec
    collector = kind(
        DenoisersConfig(count=2),
        n_clients=CLIENTS,
        n_items=ITEMS,
        width=WIDTH,
        codec=codec,
        streams=STREAMS,
    )
    if isinstance(cloak, type):
        cloak = cloak(VirtualRatingsConfig(rho=rho), n_items=ITEMS, streams=STREAMS)
    return Stack(codec=codec, cloak=cloak, collector=collector, n_clients=CLIENTS)


def sdcf(permanent: float = 0.2, report_one: float = 0.9) -> Stack:
    config = RandomizedResponseConfig(permanent=permanent, report_one=report_one, report_zero=0.2)
    return denoised(cloak=RandomizedResponse(config, n_items=ITEMS, streams=STREAMS))


# Cloaks.


class OwnReference(VirtualRatings):
    """Names itself as what it is to be compared with."""

    def without_virtual(self) -> "OwnReference":
        return self


class Doubles(OwnReference):
    """Sends every row twice as large."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        covered = super().cover(local, round_=round_, exempt=exempt)
        block = covered.upload.block
        assert block.values is not None
        upload = replace(covered.upload, block=replace(block, values=2 * block.values))
        return replace(covered, upload=upload)


class Forgets(OwnReference):
    """Leaves out the first row of a batch, which is a rated item's or not."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        covered = super().cover(local, round_=round_, exempt=exempt)
        block = covered.upload.block
        assert block.values is not None
        first = int(np.flatnonzero(~covered.virtual)[0])
        keep = np.arange(len(block.rows)) != first
        less = RowBlock(
            indptr=block.indptr - (block.indptr > first),
            rows=block.rows[keep],
            values=block.values[keep],
        )
        upload = Upload(clients=covered.upload.clients, block=less)
        return Cloaked(upload=upload, virtual=covered.virtual[keep])


class CallsVirtual(OwnReference):
    """Calls a rated item's row virtual, so that denoisers take it out again."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        covered = super().cover(local, round_=round_, exempt=exempt)
        if exempt.all():
            return covered
        owners = np.repeat(exempt, covered.upload.block.lengths)
        virtual = covered.virtual.copy()
        virtual[np.flatnonzero(~virtual & ~owners)[0]] = True
        return replace(covered, virtual=virtual)


class NamesNone(VirtualRatings):
    """Knows of no twin."""

    def without_virtual(self) -> VirtualRatings:
        raise NotImplementedError


# Collectors.


class EverySecond(DirectSum):
    def participants(self, cohort: IntArray) -> IntArray:
        return super().participants(cohort)[::2]


class EverySecondDenoised(Denoisers):
    def participants(self, cohort: IntArray) -> IntArray:
        return super().participants(super().participants(cohort)[::2])


class AsksEverySecond(DirectSum):
    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> DirectSession:
        return super().open(round_=round_, participants=participants[::2], wire=wire)


class Nobody(DirectSum):
    def participants(self, cohort: IntArray) -> IntArray:
        return cohort[:0]


class NobodyOnce(DirectSum):
    """Asks nobody for its second round."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> DirectSession:
        some = participants[: None if round_ != 2 else 0]
        return super().open(round_=round_, participants=some, wire=wire)


class ExemptsAll(Denoisers):
    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> DenoisingSession:
        return _ExemptsAll(self, round_, participants, wire)


class _ExemptsAll(DenoisingSession):
    def exempt(self, clients: IntArray) -> BoolArray:
        return np.ones(len(clients), dtype=bool)


class ReplayGuard(Denoisers):
    """Refuses to open a round twice."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> DenoisingSession:
        opened = vars(self).setdefault("opened", set())
        if round_ in opened:
            raise ProtocolError(f"round {round_} was opened before")
        opened.add(round_)
        return super().open(round_=round_, participants=participants, wire=wire)


class KeyRatchet(Denoisers):
    """Hashes its key at every step; a step too many, and it is not the key of the round."""

    def open(self, *, round_: int, participants: IntArray, wire: Wire) -> DenoisingSession:
        vars(self)["key"] = hashlib.sha256(vars(self).get("key", b"0")).digest()
        due = b"0"
        for _ in range(round_):
            due = hashlib.sha256(due).digest()
        if vars(self)["key"] != due:
            raise ProtocolError(f"round {round_}: not the key of this round")
        return super().open(round_=round_, participants=participants, wire=wire)


# Rings.


class Tenths(FixedPoint):
    def encode(self, values: FloatArray) -> RingArray:
        return FixedPoint.encode(self, np.round(values, 1))


class Zeros(FixedPoint):
    def encode(self, values: FloatArray) -> RingArray:
        return FixedPoint.encode(self, np.zeros_like(values))


class DecodesSingle(FixedPoint):
    def decode(self, ring: RingArray) -> FloatArray:
        return FixedPoint.decode(self, ring).astype(np.float32).astype(np.float64)


class Harmless(FixedPoint):
    """Has a name of its own."""


# Bags.


class LosesOne(LayeredBags):
    """Loses the last vector of every bag, and says that it is bare."""

    def open(self, **round_: Any) -> Any:
        session = super().open(**round_)

        def close() -> dict[str, FloatArray]:
            return {name: bag[:-1] for name, bag in session.close().items()}

        return SimpleNamespace(submit=session.submit, close=close)

    def bare(self) -> LayeredBags:
        return self


def bagged(kind: type[LayeredBags] = LayeredBags) -> Stack:
    shapes = {"users": BagShape(width=WIDTH, most=1)}
    bags = kind(bags=shapes, n_clients=CLIENTS, codec=FixedPoint(), streams=STREAMS)
    stack = direct(bags=bags)
    assert isinstance(stack, Stack)
    return stack


# Algorithms.


class Changed(PMF):
    """PMF whose steps are changed on their way."""

    def client_step(self, clients: IntArray, public: Any, vault: Any, streams: Any) -> Any:
        step = super().client_step(clients, public, vault, streams)
        users = vault.read("user_vectors", clients)
        changed = {"upload": self.upload(step.upload, users), "commit": step.commit}
        parts = ("clients", "rated", "impute", "resample_residuals", "rows")
        return SimpleNamespace(**{name: getattr(step, name) for name in parts} | changed)

    def upload(self, upload: Upload, users: FloatArray) -> Upload:
        block = upload.block
        assert block.values is not None
        values = self.values(block.values.copy(), block, users)
        return replace(upload, block=replace(block, values=values))

    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        raise NotImplementedError


class AddsTheMean(Changed):
    """Adds the mean private vector of the batch to every row."""

    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        return np.asarray(values + users.mean(axis=0))


class GivesTheMeanAway(Changed):
    """The first of a batch gives the mean vector away, the last takes it off again."""

    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        mean = np.round(users.mean(axis=0) * 64) / 64  # on the grid: the sum is what it was
        values[block.indptr[0]] += mean
        values[block.indptr[-2]] -= mean
        return values


class Remembers(Changed):
    """Adds a trace of the clients that were computed before."""

    def __init__(self, config: PMFConfig) -> None:
        super().__init__(config)
        self.seen = np.zeros(config.rank)

    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        before = self.seen.copy()
        self.seen += users.sum(axis=0)
        return values + before


class TrainsTogether(PMF):
    """Clients of a batch end with the mean of their vectors."""

    def client_step(self, clients: IntArray, public: Any, vault: Any, streams: Any) -> Any:
        step = super().client_step(clients, public, vault, streams)

        def commit(vault: Any) -> None:
            step.commit(vault)
            users = vault.read("user_vectors", clients)
            vault.write("user_vectors", clients, users * 0 + users.mean(axis=0))

        return SimpleNamespace(clients=clients, upload=step.upload, commit=commit)


class Unseeded(Changed):
    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        return values + np.random.default_rng().normal(size=values.shape)


class StartsAnywhere(PMF):
    def initial_public(self, n_rows: int, streams: Streams) -> Any:
        public = super().initial_public(n_rows, streams)
        return replace(public, table=np.random.default_rng().normal(size=public.table.shape))


class WarmsUp(Changed):
    """Smaller steps for the first so many calls, whichever run they belong to."""

    calls = 0
    warm = 3

    def values(self, values: FloatArray, block: RowBlock, users: FloatArray) -> FloatArray:
        self.calls += 1
        return values * (0.5 if self.calls <= self.warm else 1.0)


class FirstCall(WarmsUp):
    """Its very first call is another."""

    warm = 1


class Gives(Changed):
    """Gives the user vectors to a bag."""

    def upload(self, upload: Upload, users: FloatArray) -> Upload:
        bag = SetBlock(indptr=np.arange(len(users) + 1), values=users)
        return replace(upload, bags={"users": bag})


def shared(algorithm: type[PMF]) -> Callable[[], Callable[[], PMF]]:
    """One instance for all runs."""

    def make() -> Callable[[], PMF]:
        one = algorithm(CONFIG)
        return lambda: one

    return make


def fresh(algorithm: type[PMF], **settings: Any) -> Callable[[], Callable[[], PMF]]:
    config = replace(CONFIG, **settings)
    return lambda: lambda: algorithm(config)


def from_zeros() -> Callable[[], Started]:
    start = {"user_vectors": np.zeros((CLIENTS, WIDTH))}
    return lambda: Started(PMF(CONFIG), public=np.zeros((ITEMS, WIDTH)), private=start)


# Scopes.


def whole_groups(invited: IntArray) -> IntArray:
    """FedRec++'s rule, in so many words: no denoiser alone, nobody without its denoiser."""
    binding = denoised().collector.binding  # type: ignore[attr-defined]
    here = set(invited.tolist())
    ordinary = {c for c in here if not binding.is_denoiser[c]}
    able = {c for c in ordinary if int(binding.denoisers[binding.group[c]]) in here}
    able |= {int(binding.denoisers[binding.group[c]]) for c in able}
    return np.array(sorted(able), dtype=np.int64)


FIVE = {"cohort": CohortConfig(clients_per_round=5)}
LONELY = {"cohort": CohortConfig(clients_per_round=1)}
GROUPS = {"scope": Scope(taking_part=whole_groups)}
DROPS = {"scope": Scope(drops_reports=True)}

CASES: dict[str, Case] = {
    # The reference is nothing that a layer may choose.
    "a cloak that names itself as its reference, nothing taken out": Case(
        expected=STACK, stack=lambda: replace(direct(), cloak=denoised(cloak=OwnReference).cloak)
    ),
    "a cloak that names itself, rows doubled": Case(
        expected=STACK, stack=lambda: denoised(cloak=Doubles, rho=0.0)
    ),
    "a cloak that names itself, a rated row left out": Case(
        expected=STACK, stack=lambda: denoised(cloak=Forgets, rho=0.0)
    ),
    "a cloak that names itself, a rated row called virtual": Case(
        expected=STACK, stack=lambda: denoised(cloak=CallsVirtual)
    ),
    "a bag channel that names itself as bare, a vector lost": Case(
        expected=STACK, stack=lambda: bagged(LosesOne), algorithm=fresh(Gives)
    ),
    "a cloak that knows of no reference": Case(
        expected=LOSSLESS, stack=lambda: denoised(cloak=NamesNone)
    ),
    # Everybody invited is in the sum.
    "a collector that drops every second client": Case(
        expected=STACK, stack=lambda: direct(EverySecond)
    ),
    "denoisers that drop every second client": Case(
        expected=STACK, stack=lambda: denoised(EverySecondDenoised), beside=GROUPS
    ),
    "a session that asks every second client": Case(
        expected=STACK, stack=lambda: direct(AsksEverySecond)
    ),
    "a collector with which nobody takes part": Case(expected=STACK, stack=lambda: direct(Nobody)),
    "a session that asks nobody in round 2": Case(expected=STACK, stack=lambda: direct(NobodyOnce)),
    "denoisers, five of eight invited, nobody said who sits out": Case(
        expected=STACK, stack=denoised, beside=FIVE
    ),
    "denoisers, five of eight invited, whole groups": Case(
        expected=TAKING_PART, stack=denoised, beside=FIVE | GROUPS
    ),
    "denoisers, one invited": Case(expected=NOTHING, stack=denoised, beside=LONELY | GROUPS),
    "denoisers, everybody invited": Case(expected=LOSSLESS, stack=denoised),
    # Something was compared.
    "exempt() for all": Case(expected=STACK, stack=lambda: denoised(ExemptsAll)),
    "no rating at all": Case(expected=NOTHING, stack=denoised, ratings=NONE),
    "zero uploads": Case(expected=NOTHING, stack=denoised, algorithm=from_zeros),
    # The ring is the package's own.
    "a ring that rounds to 0.1": Case(expected=STACK, stack=lambda: direct(codec=Tenths())),
    "a ring that rounds to 0.1, under denoisers": Case(
        expected=STACK, stack=lambda: denoised(codec=Tenths())
    ),
    "a ring that sends zeros": Case(expected=STACK, stack=lambda: direct(codec=Zeros())),
    "a ring that decodes to single precision": Case(
        expected=STACK, stack=lambda: direct(codec=DecodesSingle())
    ),
    "a ring under another name": Case(expected=LOSSLESS, stack=lambda: denoised(codec=Harmless())),
    # An upload is its client's alone.
    "uploads that add the mean vector of the batch": Case(
        expected=ALGORITHM, stack=direct, algorithm=fresh(AddsTheMean)
    ),
    "uploads that give the batch's mean vector away, sums unchanged": Case(
        expected=ALGORITHM, stack=direct, algorithm=fresh(GivesTheMeanAway), ratings=EVERYTHING
    ),
    "uploads that remember earlier clients": Case(
        expected=ALGORITHM, stack=direct, algorithm=fresh(Remembers)
    ),
    "private vectors trained with the batch": Case(
        expected=ALGORITHM, stack=direct, algorithm=fresh(TrainsTogether)
    ),
    # The algorithm is blamed for what is its own.
    "an unseeded algorithm": Case(expected=ALGORITHM, stack=direct, algorithm=fresh(Unseeded)),
    "an unseeded start": Case(expected=ALGORITHM, stack=denoised, algorithm=fresh(StartsAnywhere)),
    "a warm-up counter that outlives a run": Case(
        expected=ALGORITHM, stack=direct, algorithm=shared(WarmsUp)
    ),
    "an algorithm whose first call is another": Case(
        expected=ALGORITHM, stack=direct, algorithm=shared(FirstCall)
    ),
    "Langevin noise of the run's streams": Case(
        expected=LOSSLESS, stack=denoised, algorithm=fresh(PMF, temperature=0.01)
    ),
    # A layer lives through one run.
    "a replay guard": Case(expected=LOSSLESS, stack=lambda: denoised(ReplayGuard)),
    "a key ratchet": Case(expected=LOSSLESS, stack=lambda: denoised(KeyRatchet)),
    # What a cloak does not report.
    "SDCF with denoisers": Case(expected=REPORTS, stack=sdcf, beside=DROPS),
    "SDCF with denoisers, nobody said that it drops reports": Case(expected=STACK, stack=sdcf),
    "SDCF that reports everything": Case(
        expected=LOSSLESS, stack=lambda: sdcf(permanent=0.0, report_one=1.0), beside=DROPS
    ),
    # Sound stacks.
    "plain sums": Case(expected=LOSSLESS, stack=direct),
    "vectors in a bag": Case(expected=LOSSLESS, stack=bagged, algorithm=fresh(Gives)),
    "virtual ratings that nobody takes out": Case(
        expected=STACK, stack=lambda: replace(direct(), cloak=denoised().cloak)
    ),
}
