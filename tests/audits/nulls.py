"""Made-up audits whose attacks know nothing, or a planted amount, through the whole pipeline.

A transcript without content, a truth, and attacks that claim at random: what the harness finds in
them, from scoring to severity, is its own doing. ``NULLS`` names the kinds of federations.
"""

from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np

from attacks import AttackCard, Claims, GroundTruth, NotApplicable, evaluate
from attacks.scoring.profiles import HistogramClaim, LabelClaim
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.ratings import RatingClaim
from attacks.scoring.sets import SetClaim
from attacks.scoring.vectors import VectorClaim
from attacks.scoring.virtual_rows import UnmaskedClaim
from audits.report.findings import severity
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.wire import Adversary, BlockStore, Step, Transcript, Truth, View
from tests.attacks.made import grid_of

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
CARD = AttackCard(game="g", adversary="a", needs="n", statistic="s", reference="r", limits="l")

SCALES = {
    "0/1": (np.array([0.0, 1.0]), 1.0),
    "all ones": (np.array([1.0]), 1.0),
    "half stars": (np.arange(1, 11) / 2, 0.5),
    "1 to 10": (np.arange(1.0, 11.0), 1.0),
    "-2 to 2": (np.arange(-2.0, 3.0), 1.0),
    "0.944 fives": (np.array([5.0] * 17 + [1.0]), 1.0),
}
SCORES = ("noise", "coin", "row order", "tied")
WORST_FIRST = ("critical", "high", "medium", "low", "info")


@dataclass(frozen=True, kw_only=True)
class Spec:
    """A kind of federation."""

    scale: str
    skewed: bool
    shuffled: bool
    rounds: int
    scores: str
    clients: int = 60
    items: int = 50


def kinds(rounds: int) -> list[Spec]:
    """Every kind of federation without a leak, all four kinds of scores among them."""
    return [
        Spec(
            scale=scale,
            skewed=skewed,
            shuffled=shuffled,
            rounds=rounds,
            scores=SCORES[(n + n // 6) % 4],
            clients=60 if rounds == 1 else 30,  # 12 rounds of more would take minutes
            items=50 if rounds == 1 else 24,
        )
        for n, (skewed, shuffled, scale) in enumerate(product((True, False), (True, False), SCALES))
    ]


def null_specs(number: int) -> list[Spec]:
    """So many federations without a leak; in every fourth the attacks try 12 rounds."""
    once, often = kinds(1), kinds(12)
    return [
        often[n // 4 % len(often)] if n % 4 == 0 else once[n % len(once)] for n in range(number)
    ]


@dataclass(frozen=True)
class Stub:
    """An attack with an answer for every round."""

    answers: dict[int, Claims]
    name: str = "stub"
    card: AttackCard = CARD
    reads_one_round: bool = True
    reads_item_rows: bool = field(default=False)

    def run(self, view: View) -> Claims | NotApplicable:
        return self.answers[view.payload_rounds(Step.UPLOAD)[0]]


def rated_sets(spec: Spec, rng: np.random.Generator) -> BoolArray:
    """Who rated what; items are numbered by popularity unless they are shuffled."""
    weights = np.arange(1, spec.items + 1.0) ** -(1.0 if spec.skewed else 0.0)
    if spec.shuffled:
        rng.shuffle(weights)
    chance = np.minimum(0.95, weights * 0.2 * spec.items / weights.sum())
    labels: BoolArray = rng.random((spec.clients, spec.items)) < chance
    empty = np.flatnonzero(~labels.any(axis=1))
    labels[empty, rng.integers(spec.items, size=len(empty))] = True
    return labels


def federation(
    spec: Spec, rng: np.random.Generator
) -> tuple[Transcript, GroundTruth, BoolArray, FloatArray]:
    """Transcript without content, truth, rated sets and the ratings of a grid."""
    labels = rated_sets(spec, rng)
    levels, step = SCALES[spec.scale]
    clients, items = np.nonzero(labels)
    ratings = rng.choice(levels, size=len(clients))
    train = RatingTable.from_columns(
        name="null",
        n_clients=spec.clients,
        n_items=spec.items,
        clients=clients,
        items=items,
        ratings=ratings,
        scale=RatingScale(min(0.0, levels.min()), levels.max(), step),
        client_labels=np.arange(spec.clients),
        item_labels=np.arange(spec.items),
    )
    store, secret = BlockStore(None), BlockStore(None)
    for round_ in range(1, spec.rounds + 1):
        store.append(round_, "upload", {"values": np.zeros(1)})
        store.seal(round_)
        vectors = rng.standard_normal((spec.clients, 5))
        secret.append(round_, "private-user_vectors", {"values": vectors})
        secret.seal(round_)
    truth = GroundTruth(
        recorded=Truth(secret),
        train=train,
        secrets={
            "labels.label": rng.choice(4, p=(0.7, 0.1, 0.1, 0.1), size=spec.clients),
            "sets.set": rng.random((spec.clients, 12)) < np.linspace(0.1, 0.9, 12),
            "histograms.histogram": rng.poisson(3.0, (spec.clients, 6)) + np.eye(6)[0],
        },
    )
    public = {
        "n_clients": spec.clients,
        "n_items": spec.items,
        "ring": {"bits": 64, "fraction_bits": 32, "clip": 4096.0},
    }
    return Transcript(store, public), truth, labels, levels


def guesses(spec: Spec, levels: FloatArray, rng: np.random.Generator, round_: int) -> Claims:
    """What an attack claims that knows nothing."""
    shape = (spec.clients, spec.items)
    rows = np.arange(spec.items, dtype=np.float64)
    scores: dict[str, FloatArray] = {
        "noise": rng.standard_normal(shape),
        "coin": rng.integers(0, 2, shape).astype(np.float64),
        "row order": np.tile(-rows, (spec.clients, 1)),
        "tied": np.zeros(shape),
    }
    everybody = np.arange(spec.clients)
    visible = np.ones(shape, dtype=bool) if rng.random() < 0.5 else rng.random(shape) < 0.4
    named = rng.random(shape) < rng.choice([0.0, 0.3, 1.0])
    about, items = np.nonzero(named)
    classes = rng.random((spec.clients, 4))
    shares = rng.dirichlet(np.ones(6), size=spec.clients)
    made = (
        RatedSetClaim(
            clients=everybody,
            scores=scores[spec.scores],
            visible=visible,
            predicted=rng.random(shape) < rng.choice([0.02, 0.5]),
        ),
        RatingClaim(
            clients=about,
            items=items,
            ratings=rng.choice(levels, size=len(about)),
            about=everybody,
        ),
        UnmaskedClaim(
            clients=everybody, visible=visible, proven=visible & (rng.random(shape) < 0.5)
        ),
        VectorClaim(
            round=round_, clients=everybody, vectors=rng.standard_normal((spec.clients, 5))
        ),
        LabelClaim(name="label", clients=everybody, scores=classes),
        SetClaim(name="set", clients=everybody, scores=rng.random((spec.clients, 12))),
        HistogramClaim(
            name="histogram", clients=everybody, shares=shares, activity=rng.random(spec.clients)
        ),
    )
    return Claims(rounds=(round_,), made=made)


def null_audit(spec: Spec, seed: int) -> str:
    """The worst severity that ignorant attacks find: two of one round, or one that tries many."""
    rng = np.random.default_rng(seed)
    transcript, truth, _, levels = federation(spec, rng)
    found = []
    for _ in range(2 if spec.rounds == 1 else 1):
        rounds = range(1, spec.rounds + 1)
        stub = Stub({round_: guesses(spec, levels, rng, round_) for round_ in rounds})
        finding = evaluate(stub, SERVER, transcript, truth, seed=seed, judged=2)
        found.append(str(severity(finding)))
    return min(found, key=WORST_FIRST.index)


def planted_audit(spec: Spec, seed: int, shift: float | None) -> str:
    """Severity of one attack among 24 pairs that tells something of the rated sets.

    Args:
        spec: the federation.
        seed: of everything.
        shift: of the scores of rated items, which have deviation 1; None uploads the ratings.
    """
    rng = np.random.default_rng(seed)
    transcript, truth, labels, levels = federation(spec, rng)
    answers = {}
    for round_ in range(1, spec.rounds + 1):
        rated, _, _, *others = guesses(spec, levels, rng, round_).made
        assert isinstance(rated, RatedSetClaim)
        if shift is None:
            train = truth.ratings
            rated = replace(
                rated, scores=labels.astype(np.float64), visible=labels, predicted=labels
            )
            read = RatingClaim(
                clients=train.clients.astype(np.int64),
                items=train.items.astype(np.int64),
                ratings=train.ratings,
            )
            answers[round_] = Claims(rounds=(round_,), made=(rated, read, *others))
        else:
            rated = replace(rated, scores=grid_of(rated.scores) + shift * labels)
            answers[round_] = Claims(rounds=(round_,), made=(rated,))
    finding = evaluate(Stub(answers), SERVER, transcript, truth, seed=seed, judged=24)
    return str(severity(finding))
