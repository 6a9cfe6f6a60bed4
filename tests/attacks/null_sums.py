"""Recorded masked federations by the hundred: nothing that an attack calls certain may be false.

Every federation is trained by the engine under masks, and every attack of the suite runs on what an
adversary saw of it. Some hold nothing that could be certain, some hold lone rows, pairs and twins,
and in some the adversary knows vectors that are not what it takes them for. ``draw`` says what kind
a number stands for, ``record`` trains it, ``outcome`` judges it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from attacks import SUITE, Attack, Claims, GroundTruth
from attacks.families.sums.sum_decoding import SumDecoding
from attacks.scoring.clear_uploads import ClearUploadsClaim
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.view.knowledge import item_view
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.algorithms.item_tables import PFedRec, PFedRecConfig
from secure_fedrec.algorithms.item_tables.trainer import ItemTables
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines import Problem, RecordedRun, sizes_of
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.engines.rating_problems import vault_of
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.stacking import build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Adversary, OwnUploads, RecordingPolicy
from tests.attacks.made import scored_by

KINDS = ("popular", "sparse", "decoys", "popular", "sparse", "decoys", "sparse", "decoys", "tables")
SCALES = {
    "1 to 5": (RatingScale(1.0, 5.0, 1.0), np.arange(1.0, 6.0)),
    "half stars": (RatingScale(0.5, 5.0, 0.5), np.arange(1, 11) / 2),
    "all ones": (RatingScale(0.0, 1.0, 1.0), np.ones(1)),
    "0/1": (RatingScale(0.0, 1.0, 1.0), np.array([0.0, 1.0])),
    "-2 to 2": (RatingScale(-2.0, 2.0, 1.0), np.arange(-2.0, 3.0)),
}
FRACTION_BITS = (4, 6, 8, 10, 12, 16, 16, 20, 24, 24, 32, 32)
COARSE = 10
"""Fraction bits of a coarse ring, at most."""
BUDGET = 2.0**15
"""Sums that an attack forms: fewer than it would, so that a thousand federations take minutes."""
CROWD = 6
"""Raters of a popular item, at least, the adversary's own clients left out."""
IDLE = 8
"""Clients, the last ones, who rate nothing where the adversary knows vectors."""


@dataclass(frozen=True, kw_only=True)
class Draw:
    """A federation to record.

    Args:
        seed: of all draws.
        kind: "popular": every item has a crowd; "sparse": lone rows, pairs, twins and small sums;
            "decoys": either, and the adversary knows vectors; "tables": PFedRec, with crowds or
            sparse.
        crowded: whether every item has a crowd.
        scale: name of the rating scale.
        own: the adversary's own clients, the first so many.
        server: whether the adversary has the server.
        cohort: clients of a round; None for all.
        floor: rows of items with fewer raters are kept back.
    """

    seed: int
    kind: str
    clients: int
    scale: str
    rank: int
    crowded: bool = False
    biases: bool = False
    init_scale: float = 0.005
    learning_rate: float = 0.8
    fraction_bits: int = 32
    rounds: int = 1
    own: int = 0
    server: bool = True
    cohort: int | None = None
    floor: int = 0

    @property
    def adversary(self) -> Adversary:
        """Who looks."""
        clients = [f"client:{number}" for number in range(self.own)]
        corrupt = [*clients, "server"] if self.server else clients
        return Adversary(name="drawn", corrupt=frozenset(corrupt))

    @property
    def codec(self) -> FixedPoint:
        """The ring: no sum wraps, and what is beyond the clip is clipped."""
        bits = 32 if self.fraction_bits <= 16 else 64
        return FixedPoint(bits=bits, fraction_bits=self.fraction_bits, clip=64.0, beyond="clip")


def draw(seed: int, kind: str) -> Draw:
    """A federation of a kind."""
    rng = np.random.default_rng([seed, 1])
    crowded = kind == "popular" or (kind != "sparse" and rng.random() < 0.5)
    clients = int(rng.integers(20, 61))
    server = kind == "tables" or bool(rng.random() < 0.75)
    several = rng.random() < 0.3 or not server
    cohorts = not crowded and rng.random() < 0.2
    return Draw(
        seed=seed,
        kind=kind,
        crowded=crowded,
        scale=str(rng.choice(list(SCALES))),
        rank=int(rng.integers(1, 21) if kind != "tables" else rng.integers(8, 33)),
        biases=bool(rng.random() < 0.2),
        init_scale=float(rng.choice([0.005, 0.1, 0.5])),
        learning_rate=float(rng.choice([0.1, 0.8])),
        fraction_bits=int(rng.choice(FRACTION_BITS)),
        rounds=int(rng.integers(1, 4)),
        clients=clients,
        own=int(rng.integers(1, 5)) if several else 0,
        server=server,
        cohort=int(clients * 0.7) if cohorts else None,
        floor=int(rng.choice([0, 0, 0, 0, 2, 3])),
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Recorded:
    """A federation, trained and recorded.

    Args:
        known: what the adversary believes to know: float64[d] by round and client.
        lies: whose vector a name's really is, of names that are no other's by chance.
    """

    draw: Draw
    run: RecordedRun
    truth: GroundTruth
    known: Mapping[int, Mapping[int, FloatArray]] = field(default_factory=dict)
    lies: Mapping[int, int] = field(default_factory=dict)


def record(wanted: Draw) -> Recorded:
    """Train a federation under masks, payloads of all rounds kept."""
    rng = np.random.default_rng([wanted.seed, 2])
    table = _table(wanted, rng)
    run = _trained(wanted, *_algorithm(wanted, table))
    made = Recorded(draw=wanted, run=run, truth=GroundTruth(train=table, recorded=run.truth))
    return _with_decoys(made, rng) if wanted.kind == "decoys" else made


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A leak to plant among items of crowds.

    Args:
        rows: raters of each planted item.
        clients: of the federation.
        scale: name of the rating scale.
        rank: of the factorization.
        known: clients whose vectors the server knows.
        seed: of all draws.
    """

    rows: Sequence[Sequence[int]]
    clients: int
    scale: str
    rank: int
    known: Sequence[int]
    seed: int


def record_planted(planted: Planted) -> Recorded:
    """Train a round of it, with the defaults of the algorithm and of the ring."""
    rng = np.random.default_rng([planted.seed, 3])
    sizes = rng.integers(12, 60, 24).tolist()
    crowd = [rng.choice(planted.clients, size, replace=False).tolist() for size in sizes]
    table = table_of([*planted.rows, *crowd], planted.clients, *SCALES[planted.scale], rng)
    wanted = Draw(
        seed=planted.seed,
        kind="planted",
        clients=planted.clients,
        scale=planted.scale,
        rank=planted.rank,
    )
    run = _trained(wanted, *_algorithm(wanted, table))
    made = Recorded(draw=wanted, run=run, truth=GroundTruth(train=table, recorded=run.truth))
    vectors = _vectors(made, 1)
    return replace(made, known={1: {client: vectors[client] for client in planted.known}})


def _trained(wanted: Draw, algorithm: Algorithm, problem: Problem) -> RecordedRun:
    streams, codec = Streams.from_seed(wanted.seed), wanted.codec
    sizes = sizes_of(algorithm, problem, cohort=wanted.cohort)
    masks = MaskingLayerConfig(min_survivors=8, tail_floor=wanted.floor)
    run = RecordedRun(
        algorithm=algorithm,
        stack=build_stack({"masking": masks}, sizes=sizes, codec=codec, streams=streams),
        problem=problem,
        streams=streams,
        policy=RecordingPolicy(payload_rounds=tuple(range(1, wanted.rounds + 1))),
        cohort=CohortConfig(clients_per_round=wanted.cohort),
    )
    for _ in range(wanted.rounds):
        run.run_round()
    return run


def _algorithm(wanted: Draw, table: RatingTable) -> tuple[Algorithm, Problem]:
    knowledge = {"n_items": table.n_items, "rating_levels": table.scale.levels.tolist()}
    problem = Problem(
        vault=vault_of(table), n_rows=table.n_items, knowledge={**knowledge, "negatives": 4}
    )
    if wanted.kind == "tables":
        scale = 10.0 / (0.1 * table.n_items)  # of a step of 10 for the mean over a batch
        config = PFedRecConfig(rank=wanted.rank, rounds=wanted.rounds, item_scale=scale)
        return ItemTables(PFedRec(config, table.n_items), threads=1), problem
    settings = PMFConfig.printed(
        rank=wanted.rank,
        rounds=wanted.rounds,
        biases=wanted.biases,
        init_scale=wanted.init_scale,
        learning_rate=wanted.learning_rate,
    )
    return PMF(settings), problem


def contents(made: Recorded) -> Iterator[str]:
    """What a federation holds, in words."""
    wanted, train = made.draw, made.truth.ratings
    raters = [
        frozenset(train.clients[train.items == item].tolist()) - set(range(wanted.own))
        for item in range(train.n_items)
    ]
    pairs = Counter(own for own in raters if len(own) == 2)
    items = np.zeros((train.n_clients, train.n_items), dtype=bool)
    items[train.clients, train.items] = True
    there = {
        "lone rows": any(len(own) == 1 for own in raters),
        "pairs": max(pairs.values(), default=0) > 1,
        "twins": len(np.unique(items[items.any(axis=1)], axis=0)) < items.any(axis=1).sum(),
        "crowds alone": min(len(own) for own in raters) >= CROWD,
        "rank 1": wanted.rank == 1,
        "rank 16 or more": wanted.rank >= 16,
        "coarse ring": wanted.fraction_bits <= COARSE,
        "biases": wanted.biases and wanted.kind != "tables",
        "several rounds": wanted.rounds > 1,
        "cohorts": wanted.cohort is not None,
        "a floor": wanted.floor > 0,
        "own clients": wanted.own > 0,
        "without the server": not wanted.server,
        "vectors known": bool(made.known),
        "lies": bool(made.lies),
        "item tables": wanted.kind == "tables",
    }
    return (name for name, is_there in there.items() if is_there)


# --- who rated what -------------------------------------------------------------------------------


def _table(wanted: Draw, rng: np.random.Generator) -> RatingTable:
    active = np.arange(wanted.clients - IDLE * (wanted.kind == "decoys"))
    if wanted.kind == "tables":
        raters = interactions(active, rng, crowded=wanted.crowded)
    else:
        raters = crowds(active, wanted.own, rng) if wanted.crowded else sparse(active, rng)
    scale, levels = SCALES[wanted.scale]
    return table_of(raters, wanted.clients, scale, levels, rng)


def table_of(
    raters: Sequence[Sequence[int]],
    clients: int,
    scale: RatingScale,
    levels: FloatArray,
    rng: np.random.Generator,
) -> RatingTable:
    """Ratings drawn from some levels, of who rated each item."""
    pairs = [(client, item) for item, own in enumerate(raters) for client in sorted(set(own))]
    who, items = (np.array(each, dtype=np.int64) for each in zip(*pairs, strict=True))
    return RatingTable.from_columns(
        name="drawn",
        n_clients=clients,
        n_items=len(raters),
        clients=who,
        items=items,
        ratings=rng.choice(levels, len(who)),
        scale=scale,
        client_labels=np.arange(clients),
        item_labels=np.arange(len(raters)),
    )


def crowds(active: IntArray, own: int, rng: np.random.Generator) -> list[list[int]]:
    """Items of a crowd of honest raters each, and of some of the adversary's clients."""
    honest = active[own:]
    sizes = rng.integers(CROWD, max(CROWD + 1, len(honest)), int(rng.integers(10, 41)))
    return [
        [
            *rng.choice(honest, min(size, len(honest)), replace=False),
            *active[:own][rng.random(own) < 0.5],
        ]
        for size in sizes.tolist()
    ]


def sparse(active: IntArray, rng: np.random.Generator) -> list[list[int]]:
    """Lone rows, pairs, chains, twins, small sums and a few crowds."""
    order = rng.permutation(active).tolist()
    lone = order[: int(rng.integers(1, 6))]
    rows = [[client] for client in lone for _ in range(int(rng.integers(1, 5)))]
    left = order[len(lone) :]
    for place in range(0, min(4 * int(rng.integers(0, 3)), len(left) - 3), 4):
        one, two, three, four = left[place : place + 4]
        common = int(rng.integers(2, 5))
        rows += common * [[one, two]] + common * [[three, four]]
        rows += [[one, three], [two, four]][: int(rng.integers(0, 3))]
    for _ in range(int(rng.integers(0, 4))):  # known by their lone rows, they share some
        rows.append(rng.choice(order, 2, replace=False).tolist())
        rows.append([*lone[:2], int(rng.choice(left))][-2:])
    if rng.random() < 0.5:  # a twin rates what the other one does
        twin, other = rng.choice(order, 2, replace=False).tolist()
        rows = [[*own, twin] if other in own else own for own in rows]
    few = rng.permutation(order)[: int(rng.integers(4, len(order)))]
    for size in rng.integers(1, 6, int(rng.integers(0, 40))).tolist():
        rows.append(rng.choice(few, min(size, len(few)), replace=False).tolist())
    for size in rng.integers(CROWD, len(order) + 1, int(rng.integers(1, 10))).tolist():
        rows.append(rng.choice(order, size, replace=False).tolist())
    return rows


def interactions(active: IntArray, rng: np.random.Generator, *, crowded: bool) -> list[list[int]]:
    """Of few items, so that all are drawn by crowds as well, or of many."""
    raters: list[list[int]] = [[] for _ in range(16 if crowded else int(rng.integers(500, 4000)))]
    for client in active.tolist():
        for item in rng.choice(len(raters), int(rng.integers(4, 8)), replace=False).tolist():
            raters[item].append(client)
    return raters


# --- what is believed -----------------------------------------------------------------------------

DECOYS = ("idle", "stranger", "copy", "double", "multiple")


def _with_decoys(made: Recorded, rng: np.random.Generator) -> Recorded:
    """The true vectors of some members, and vectors under the names of clients who rate nothing.

    An idle client's own, a stranger's that nobody has, a copy of another known one, a multiple of
    one, and a double that is nearly a member's. All but the double of a member who is not known
    herself are told from members by the sums, or cannot be told apart by what the adversary knows:
    nothing certain may be false of them. Such a double is a lie: no other client has such a vector
    by chance, and what is claimed of the name is judged as a claim about the member.
    """
    wanted, last = made.draw, made.draw.clients - IDLE
    true = {round_: _vectors(made, round_) for round_ in range(1, wanted.rounds + 1)}
    members = rng.permutation(np.arange(wanted.own, last))[: int(rng.integers(0, 8))].tolist()
    known = {round_: {c: own[c] for c in members} for round_, own in true.items()}
    lies: dict[int, int] = {}
    for name in range(last, wanted.clients):
        kind, model = str(rng.choice(DECOYS)), int(rng.integers(wanted.own, last))
        others = [*members, *range(last, name)] or [model]
        copied = int(rng.choice(others))
        honest = int(rng.choice([each for each in others if each not in lies] or [name]))
        factor = float(rng.choice([-1.0, 1e-6, 0.5, 2.0, 3.0]))
        off = 10.0 ** -int(rng.integers(3, 13))
        turned, way = rng.permutation(wanted.rank), rng.standard_normal(wanted.rank)
        for round_, own in true.items():
            size = float(np.linalg.norm(own[model]) / np.linalg.norm(way))
            made_up = {
                "idle": own[name],
                "stranger": -own[model][turned] + size * way,
                "copy": known[round_].get(copied, own[model]),
                "double": own[model] + off * size * way,
                "multiple": factor * known[round_].get(honest, own[name]),
            }
            known[round_][name] = made_up[kind]
        whose = {"copy": lies.get(copied, copied), "double": model}.get(kind, last)
        if whose < last and whose not in members:
            lies[name] = whose
    return replace(made, known=known, lies=lies)


def _vectors(made: Recorded, round_: int) -> FloatArray:
    columns = made.run.truth.columns(round_, "private-user_vectors")
    assert columns is not None
    return np.asarray(columns["values"], dtype=np.float64)


# --- what is found --------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What all attacks on a federation call certain.

    Args:
        certain: how many interactions, vectors and readable uploads, by attack.
        wrong: how many of them are false.
        expected: the most that an attack itself expects to be false.
        exposed: clients of whom something certain is true.
    """

    certain: Mapping[str, int]
    wrong: int
    expected: float
    exposed: frozenset[int]


def outcome(made: Recorded) -> Outcome:
    """Run every attack on the adversary's view and judge what can be certain of its claims."""
    who, corrupted = made.draw.adversary, made.truth.corrupted_clients(made.draw.adversary)
    view = made.run.transcript.view(who, own=OwnUploads(made.run.truth, corrupted))
    seen = item_view(view)
    assert seen is not None
    certain, wrong, expected, exposed = {}, 0, 0.0, set()
    for name, attack in _attacks(made).items():
        claims = attack.run(seen)
        if not isinstance(claims, Claims):
            continue
        expected = max(expected, float(claims.details.get("expected_false_matches", 0.0)))
        for read in claims.of(ClearUploadsClaim):  # under these masks none can be
            certain[name] = sum(len(clients) for clients, _ in read.read.values())
            wrong += certain[name]
        for told in claims.of(DisclosureClaim):
            certain[name] = sum(int(p.certain.sum() + p.solved.sum()) for p in told.parts)
            # Counts of who came tell further names, which are no better than those they rest on.
            parts = [p for p in told.parts if p.vectors.shape[1] or not made.lies]
            claim = DisclosureClaim(parts=tuple(_honest(part, made) for part in parts))
            found = scored_by(claim, made.run.truth, corrupted, train=made.truth.ratings)
            wrong += int(found.figures["disclosures_wrong"] or 0)
            exposed |= set(found.details["exposed_clients"])
    return Outcome(certain=certain, wrong=wrong, expected=expected, exposed=frozenset(exposed))


def _attacks(made: Recorded) -> Mapping[str, Attack]:
    known = (lambda view, round_: made.known[round_]) if made.known else None
    return {**SUITE, SumDecoding.name: SumDecoding(known, budget=BUDGET)}


def _honest(part: Disclosures, made: Recorded) -> Disclosures:
    """A claim of names that lie, as one of the members whose vectors they have.

    Names that counts of who came tell rest on the lie: what is claimed of one under a vector that
    was not known is judged as a claim about the client whose vector it is.
    """
    if not made.lies:
        return part
    names = np.array([made.lies.get(name, name) for name in part.names.tolist()], dtype=np.int64)
    for place, name in enumerate(part.names.tolist()):
        own = made.known[part.round].get(name)
        if own is not None and not np.allclose(part.vectors[place], own, rtol=1e-6):
            names[place] = -1
    return replace(part, names=names)
