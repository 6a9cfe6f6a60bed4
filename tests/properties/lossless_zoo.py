"""Cases of losslessness with their right side: stacks, rings and algorithms, sound and broken.

Each broken one was found by attacking the property: it once passed, or somebody else was blamed.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import RatingScale, RatingTable, SyntheticConfig, generate
from secure_fedrec.engines import CohortConfig
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
from secure_fedrec.streams import Streams
from tests.properties.lossless_zoo_algorithms import (
    AddsTheMean,
    AddsTheMeanOfLargeClients,
    FirstCall,
    Gives,
    GivesOtherRows,
    GivesTheMeanAway,
    PublishesNoise,
    Remembers,
    SeedsGlobally,
    SinglePrecision,
    StartsAnywhere,
    TrainsTogether,
    Unseeded,
    WarmsUp,
    WritesIntoBags,
)
from tests.properties.lossless_zoo_layers import (
    AsksEverySecond,
    AsksTwice,
    CallsReal,
    CallsVirtual,
    ClaimsNoise,
    CountsOneMore,
    CoversAll,
    DecodesSingle,
    Doubles,
    DropsForAll,
    EverySecond,
    EverySecondDenoised,
    ExemptsAll,
    Forgets,
    Harmless,
    KeyRatchet,
    LastBatch,
    LosesOne,
    MovesCounts,
    MovesValues,
    Nobody,
    NobodyOnce,
    ReplayGuard,
    TakesAnybody,
    Tenths,
    Zeros,
)

__all__ = ["CASES", "Case"]

LOSSLESS = "lossless"
REPORTS = "lossless relative to what it reports"
TAKING_PART = "lossless relative to those who take part"
STACK = "not lossless: the stack"
ALGORITHM = "not lossless: the algorithm"
NOTHING = "nothing compared"

CLIENTS, ITEMS, WIDTH = 8, 12, 2
CONFIG = PMFConfig.printed(rank=WIDTH, learning_rate=0.1, init_scale=0.5)
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
    """Arguments of ``compare_runs`` and what it must say of them.

    Args:
        expected: the verdict.
        says: part of the first difference.
        whose: what explains it, in words; None where it is not of some clients.
    """

    expected: str
    says: str = ""
    whose: str | None = None
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


def sdcf(
    kind: type[RandomizedResponse] = RandomizedResponse,
    *,
    permanent: float = 0.2,
    report_one: float = 0.9,
) -> Stack:
    config = RandomizedResponseConfig(permanent=permanent, report_one=report_one, report_zero=0.2)
    return denoised(cloak=kind(config, n_items=ITEMS, streams=STREAMS))


def bagged(kind: type[LayeredBags] = LayeredBags) -> Stack:
    shapes = {"users": BagShape(width=WIDTH, most=1)}
    bags = kind(bags=shapes, n_clients=CLIENTS, codec=FixedPoint(), streams=STREAMS)
    stack = direct(bags=bags)
    assert isinstance(stack, Stack)
    return stack


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
    # A row that is sent is the client's own, as the plain run has it.
    "a cloak that doubles rows": Case(
        expected=STACK,
        whose="the rows of clients 0, 1, 2, 3, 4, 5, 6, 7 are doubled",
        stack=lambda: denoised(cloak=Doubles, rho=0.0),
    ),
    "a cloak that leaves a rated row out": Case(
        expected=STACK,
        says="at most lossless relative to what it reports",
        stack=lambda: denoised(cloak=Forgets, rho=0.0),
    ),
    "a cloak that calls a rated row virtual": Case(
        expected=STACK, stack=lambda: denoised(cloak=CallsVirtual)
    ),
    "a bag channel that loses a vector": Case(
        expected=STACK,
        whose="client 7's vector is missing",
        stack=lambda: bagged(LosesOne),
        algorithm=fresh(Gives),
    ),
    "a cloak that moves values between clients, sums unchanged": Case(
        expected=STACK,
        says="round 1, client 0's row of item 0, factor 0: off by +1073741824 ring units",
        stack=lambda: replace(direct(), cloak=denoised(cloak=MovesValues, rho=0.0).cloak),
        ratings=EVERYTHING,
    ),
    "a cloak that moves counts between clients, sums unchanged": Case(
        expected=STACK,
        says="round 1, client 0's row of item 0: count: off by +1",
        stack=lambda: replace(direct(), cloak=denoised(cloak=MovesCounts, rho=0.0).cloak),
        ratings=EVERYTHING,
    ),
    "a cloak that calls its virtual rows real": Case(
        expected=STACK, says="is not in the plain upload", stack=lambda: denoised(cloak=CallsReal)
    ),
    "a cloak that covers those who are exempt": Case(
        expected=STACK, says="is virtual, though", stack=lambda: denoised(cloak=CoversAll)
    ),
    "a cloak that drops reports of those who are exempt": Case(
        expected=STACK, says="is not sent, though", stack=lambda: sdcf(DropsForAll), beside=DROPS
    ),
    # Everybody invited is in the sum.
    "a collector that takes whoever is not invited": Case(
        expected=STACK,
        says="takes part, but must not",
        stack=lambda: direct(TakesAnybody),
        beside=FIVE,
    ),
    "a session that asks a client twice": Case(
        expected=STACK, says="8 clients, client 0 comes twice", stack=lambda: direct(AsksTwice)
    ),
    "a collector that claims noise it does not add": Case(
        expected=STACK,
        says="round 1, public noise, row 0",
        stack=lambda: direct(ClaimsNoise),
        algorithm=fresh(PublishesNoise),
    ),
    "a collector that counts a rating more": Case(
        expected=STACK, says="round 1, count of item 0", stack=lambda: direct(CountsOneMore)
    ),
    "a collector that drops every second client": Case(
        expected=STACK,
        says="round 1, 4 of 8 clients that must take part do not, the first is client 1",
        stack=lambda: direct(EverySecond),
        beside=DROPS,
    ),
    "a collector that keeps the batch that came last": Case(
        expected=STACK,
        whose="the rows of clients 0, 1, 2, 3, 4 are missing",
        stack=lambda: direct(LastBatch),
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
    "exempt() for all": Case(
        expected=STACK, says="all 8 clients are exempt", stack=lambda: denoised(ExemptsAll)
    ),
    "no rating at all": Case(expected=NOTHING, stack=denoised, ratings=NONE),
    "zero uploads": Case(expected=NOTHING, stack=denoised, algorithm=from_zeros),
    # The ring is the package's own.
    "a ring that rounds to 0.1": Case(expected=STACK, stack=lambda: direct(codec=Tenths())),
    "a ring that rounds to 0.1, under denoisers": Case(
        expected=STACK, stack=lambda: denoised(codec=Tenths())
    ),
    "a ring that sends zeros": Case(
        expected=STACK,
        whose="the rows of clients 0, 1, 2, 3, 4, 5, 6, 7 are zeros",
        stack=lambda: direct(codec=Zeros()),
    ),
    "a ring that decodes to single precision": Case(
        expected=STACK, says="round 1, public table", stack=lambda: direct(codec=DecodesSingle())
    ),
    "a ring under another name": Case(expected=LOSSLESS, stack=lambda: denoised(codec=Harmless())),
    # An upload is its client's alone.
    "uploads that add the mean vector of the batch": Case(
        expected=ALGORITHM,
        says="depends on who shares its batch",
        stack=direct,
        algorithm=fresh(AddsTheMean),
    ),
    "large uploads that add the mean vector of the batch": Case(
        expected=ALGORITHM, stack=direct, algorithm=fresh(AddsTheMeanOfLargeClients)
    ),
    "uploads that give the batch's mean vector away, sums unchanged": Case(
        expected=ALGORITHM, stack=direct, algorithm=fresh(GivesTheMeanAway), ratings=EVERYTHING
    ),
    "uploads that remember earlier clients": Case(
        expected=ALGORITHM, stack=direct, algorithm=fresh(Remembers)
    ),
    "private vectors trained with the batch": Case(
        expected=ALGORITHM,
        says="round 1, user_vectors, row 0",
        stack=direct,
        algorithm=fresh(TrainsTogether),
    ),
    # The algorithm is blamed for what is its own.
    "an unseeded algorithm": Case(
        expected=ALGORITHM,
        says="two plain runs of one seed differ",
        stack=direct,
        algorithm=fresh(Unseeded),
    ),
    "an algorithm that seeds a global generator": Case(
        expected=ALGORITHM,
        says="two plain runs of one seed differ",
        stack=direct,
        algorithm=fresh(SeedsGlobally),
    ),
    "an unseeded start": Case(expected=ALGORITHM, stack=denoised, algorithm=fresh(StartsAnywhere)),
    "an algorithm that gives a cloak other rows": Case(
        expected=ALGORITHM, stack=denoised, algorithm=fresh(GivesOtherRows)
    ),
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
    "a server that works in the sums it is handed": Case(
        expected=LOSSLESS, stack=bagged, algorithm=fresh(WritesIntoBags)
    ),
    "private tables of single precision": Case(
        expected=LOSSLESS, stack=denoised, algorithm=fresh(SinglePrecision)
    ),
    "plain sums": Case(expected=LOSSLESS, stack=direct),
    "vectors in a bag": Case(expected=LOSSLESS, stack=bagged, algorithm=fresh(Gives)),
    "virtual ratings that nobody takes out": Case(
        expected=STACK,
        whose="the virtual rows of clients 0, 1, 2, 3, 4, 5, 6, 7 are left in",
        stack=lambda: replace(direct(), cloak=denoised().cloak),
    ),
}
