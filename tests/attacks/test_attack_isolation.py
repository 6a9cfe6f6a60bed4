"""An attack knows its view and nothing else; a run is a function of its configuration and seed."""

import gc
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attacks import SUITE, Attack, Claims, GroundTruth, NotApplicable, evaluate
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import RatingTable, SyntheticConfig, generate, k_fold
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.engines.local_engine import CohortConfig, LocalEngine
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    Denoisers,
    DenoisersConfig,
    RandomizedResponseConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.streams import Streams
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Adversary, OwnUploads, RecordingPolicy, Step, Transcript, Truth, View
from secure_fedrec.wire.spool import Columns
from tests.attacks.made import rated_of

Federate = Callable[..., tuple[RecordedRun, GroundTruth]]
Edit = Callable[[int, str, Columns], Columns | None]
Rewritten = Callable[[Transcript, Edit], Transcript]

ENDS = {
    "model": ("server", "client"),
    "upload": ("client", "server"),
    "noise": ("client", "denoiser"),
    "denoise": ("denoiser", "server"),
    "aggregate": ("server", "server"),
}
ADVERSARIES = (
    Adversary(name="server", corrupt=frozenset({"server"})),
    Adversary(name="denoisers", corrupt=frozenset({"denoisers"})),
    Adversary(name="one-denoiser", corrupt=frozenset({"denoiser:2"})),
    Adversary(name="coalition", corrupt=frozenset({"server", "denoisers"})),
    Adversary(name="server-and-one", corrupt=frozenset({"server", "denoiser:2"})),
    Adversary(name="client", corrupt=frozenset({"client:5"})),
    Adversary(name="denoising-client", corrupt=frozenset({"client:4"})),
    Adversary(name="network", taps=frozenset({"network"})),
)
FEDERATIONS: Mapping[str, dict[str, Any]] = {
    "fedrec++": {"cloak": VirtualRatingsConfig(rho=1.0), "denoisers": 20, "rounds": 3},
    "sdcf": {"cloak": RandomizedResponseConfig(), "denoisers": 6, "rounds": 3},
    "fedrec": {
        "cloak": VirtualRatingsConfig(rho=2.0),
        "rounds": 3,
        "cohort": CohortConfig(clients_per_round=30),
    },
}


def same(first: object, second: object) -> bool:
    """Deep equality of claims, arrays bit by bit."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        nothing = first.dtype.kind == "f"  # NaN stands for no rating
        return first.dtype == second.dtype and np.array_equal(first, second, equal_nan=nothing)
    if is_dataclass(first) and not isinstance(first, type):
        names = [field.name for field in fields(first)]
        return type(first) is type(second) and all(
            same(getattr(first, name), getattr(second, name)) for name in names
        )
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        return first.keys() == second.keys() and all(same(first[k], second[k]) for k in first)
    if isinstance(first, tuple) and isinstance(second, tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, float) and isinstance(second, float) and np.isnan(first):
        return bool(np.isnan(second))  # no rule
    return bool(first == second)


def seen_messages(adversary: Adversary, name: str, columns: Columns) -> np.ndarray[Any, Any]:
    """Which messages of a block a corrupted party sent (under its name) or received."""
    sender, receiver = ENDS[name]
    seen = np.zeros(len(columns["lengths"]), dtype=bool)
    for role, ids in ((sender, columns["senders"]), (receiver, columns["receivers"])):
        members = adversary.members(role)
        seen |= members is None or np.isin(ids, sorted(members))
    return seen


def scrambler(adversary: Adversary, seed: int) -> Edit:
    """Garbles every message the adversary did not see and deals all messages in another order."""
    rng = np.random.default_rng(seed)

    def scramble(round_: int, name: str, columns: Columns) -> Columns | None:
        del round_
        if name in ("model", "result"):
            return columns if adversary.corrupt else {"table": -columns["table"]}  # a broadcast
        seen = seen_messages(adversary, name, columns)
        hidden_rows = np.repeat(~seen, columns["lengths"])
        for column in ("rows", "counts", "values"):
            if column in columns:
                hidden = columns[column][hidden_rows]
                columns[column][hidden_rows] = np.roll(hidden, 1, axis=0) ^ hidden.dtype.type(1)
        if "tags" in columns:
            unseen = columns["tags"][~seen]
            columns["tags"][~seen] = unseen[::-1]
        columns["sizes"][~seen] += 8
        return dealt(columns, rng.permutation(len(seen)))

    return scramble


def dealt(columns: Columns, order: np.ndarray[Any, Any]) -> Columns:
    """The messages of a block in another order."""
    starts = np.cumsum(columns["lengths"]) - columns["lengths"]
    spans = zip(starts[order].tolist(), columns["lengths"][order].tolist(), strict=True)
    parts = [np.arange(start, start + length) for start, length in spans]
    rows = np.concatenate([np.empty(0, dtype=np.int64), *parts]).astype(np.int64)
    per_row = {"rows", "counts", "values"}
    return {
        key: column[rows] if key in per_row else column[order] for key, column in columns.items()
    }


# --- the view -------------------------------------------------------------------------------------


@pytest.mark.claim("view-is-own-messages")
@pytest.mark.parametrize("federation", FEDERATIONS)
@pytest.mark.parametrize("adversary", ADVERSARIES, ids=lambda adversary: str(adversary.name))
@pytest.mark.parametrize("attack", SUITE.values(), ids=SUITE)
def test_claims_depend_on_the_view_alone(
    federate: Federate,
    rewritten: Rewritten,
    federation: str,
    adversary: Adversary,
    attack: Attack,
) -> None:
    run, _ = federate(**FEDERATIONS[federation])
    expected = attack.run(run.transcript.view(adversary))
    for seed in (1, 2):
        scrambled = rewritten(run.transcript, scrambler(adversary, seed))
        assert same(attack.run(scrambled.view(adversary)), expected)


def test_the_scrambler_does_scramble(federate: Federate, rewritten: Rewritten) -> None:
    """What one adversary cannot see another one can: there the claims must change."""
    run, _ = federate(**FEDERATIONS["fedrec++"])
    coalition, server = ADVERSARIES[3], ADVERSARIES[0]
    scrambled = rewritten(run.transcript, scrambler(server, 1))
    attack = SUITE["collusion-linkage"]
    before = attack.run(run.transcript.view(coalition))
    after = attack.run(scrambled.view(coalition))
    assert isinstance(before, Claims)
    assert not same(before, after)
    noise = (next(iter(t._store.read(1, "noise"))) for t in (run.transcript, scrambled))
    first, second = noise
    assert not np.array_equal(first["values"], second["values"])
    uploads = (next(iter(t._store.read(1, "upload"))) for t in (run.transcript, scrambled))
    first, second = uploads
    assert not np.array_equal(first["senders"], second["senders"])


@pytest.mark.parametrize("attack", SUITE.values(), ids=SUITE)
def test_the_truth_is_opened_after_the_claims_are_made(federate: Federate, attack: Attack) -> None:
    """A truth replaced by noise changes scores and not claims."""
    run, truth = federate(**FEDERATIONS["fedrec++"])
    adversary = ADVERSARIES[3]
    handed: list[Claims | NotApplicable] = []

    class Watched:
        name = attack.name
        card = attack.card

        def run(self, view: View) -> Claims | NotApplicable:
            assert type(view) is View
            handed.append(attack.run(view))
            return handed[-1]

    shuffled = np.random.default_rng(0).permutation(truth.ratings.n_items)[truth.ratings.items]
    order = np.lexsort((shuffled, truth.ratings.clients))
    false_train = RatingTable.from_columns(
        name="false",
        n_clients=truth.ratings.n_clients,
        n_items=truth.ratings.n_items,
        clients=truth.ratings.clients[order],
        items=shuffled[order],
        ratings=truth.ratings.ratings[order],
        scale=truth.ratings.scale,
        client_labels=truth.ratings.client_labels,
        item_labels=truth.ratings.item_labels,
    )
    false_truth = GroundTruth(
        train=false_train, recorded=truth.recorded, denoiser_clients=truth.denoiser_clients
    )
    honest = evaluate(Watched(), adversary, run.transcript, truth, seed=0)
    misled = evaluate(Watched(), adversary, run.transcript, false_truth, seed=0)
    assert same(*handed)
    if "auc" in honest.figures:  # claims of vectors alone are judged by recorded ones
        assert honest.figures["auc"] != misled.figures["auc"]


def reachable(root: object) -> Iterator[object]:
    """Every object that references from ``root`` lead to, short of code and modules."""
    code = (types.ModuleType, types.FunctionType, types.MethodType, type)
    found, queue = {id(root)}, [root]
    while queue:
        one = queue.pop()
        yield one
        for other in gc.get_referents(one):
            if id(other) not in found and not isinstance(other, code):
                found.add(id(other))
                queue.append(other)


@pytest.mark.claim("view-is-own-messages")
@pytest.mark.parametrize("adversary", ADVERSARIES, ids=lambda adversary: str(adversary.name))
def test_no_path_leads_from_a_view_to_the_truth(federate: Federate, adversary: Adversary) -> None:
    run, truth = federate(**FEDERATIONS["fedrec++"])
    forbidden = (Truth, GroundTruth, RatingTable, Vault, RecordedRun, Streams, PMF, Stack)
    # As attacks get it: with what the adversary's own clients know of themselves.
    own = OwnUploads(truth.recorded, {0, 5} | truth.corrupted_clients(adversary))
    view = run.transcript.view(adversary, own=own)
    mine = own.uploads(1)
    assert mine is not None
    assert set(mine.senders.ids.tolist()) <= own.clients
    objects = list(reachable(view))
    assert any(isinstance(one, np.ndarray) for one in objects)  # the walk does reach the store
    assert not [type(one).__name__ for one in objects if isinstance(one, forbidden)]
    assert not any(one is truth.recorded._store for one in objects)


def test_views_of_several_payload_senders_match_the_full_one(federate: Federate) -> None:
    """Keeping the payloads of some clients leaves the claims about these clients as they are."""
    settings = FEDERATIONS["fedrec"] | {"cohort": None}
    full, _ = federate(**settings)
    some, _ = federate(**settings, payload_senders=(3, 9, 40))
    attack, server = SUITE["lattice"], ADVERSARIES[0]
    everybody = attack.run(full.transcript.view(server))
    three = attack.run(some.transcript.view(server))
    assert isinstance(everybody, Claims)
    assert isinstance(three, Claims)
    np.testing.assert_array_equal(rated_of(three).clients, [3, 9, 40])
    np.testing.assert_array_equal(rated_of(three).scores, rated_of(everybody).scores[[3, 9, 40]])


# --- every attack on every lacking view -----------------------------------------------------------

NEEDS = {
    "direct": {"upload"},
    "intersection": {"upload"},
    "lattice": {"upload"},
    "collusion-linkage": {"upload", "noise"},
    "denoiser-sums": {"upload", "denoise"},
    "denoiser-exposure": {"denoise"},
    "subset-regression": {"upload", "aggregate"},
}


@pytest.mark.parametrize("adversary", ADVERSARIES, ids=lambda adversary: str(adversary.name))
@pytest.mark.parametrize("attack", [SUITE[name] for name in NEEDS], ids=NEEDS)
def test_an_attack_runs_exactly_where_its_view_has_what_it_needs(
    federate: Federate, attack: Attack, adversary: Adversary
) -> None:
    run, truth = federate(**FEDERATIONS["fedrec++"])
    assert 4 in truth.denoiser_clients
    assert 5 not in truth.denoiser_clients
    view = run.transcript.view(adversary)
    claims = attack.run(view)
    has = {step.name.lower() for step in Step if view.sees(step)}
    if "client" in adversary.name:
        has -= {"noise"}  # its own messages are anonymous on that channel
    if adversary.name == "denoising-client":  # uploads nothing under its name
        assert isinstance(claims, NotApplicable) or not len(rated_of(claims).clients)
        return
    missing = NEEDS[attack.name] - has
    if not missing:
        assert isinstance(claims, Claims)
        return
    assert isinstance(claims, NotApplicable)
    words = {"upload": "upload", "noise": "noise", "aggregate": "aggregate", "denoise": "sums"}
    assert any(words[step] in claims.reason for step in missing)


# --- determinism ----------------------------------------------------------------------------------


def recorded(directory: Path, batch_bytes: int | None) -> RecordedRun:
    """Four rounds of FedRec++ on disk."""
    train, test = k_fold(
        generate(SyntheticConfig(clients=50, items=80, mean_ratings=10.0, seed=2)),
        folds=5,
        fold=0,
        seed=1,
    )
    streams = Streams.from_seed(99)
    codec = FixedPoint()
    algorithm = PMF(PMFConfig.printed(rank=5, rounds=4))
    collector = Denoisers(
        DenoisersConfig(count=12),
        n_clients=train.n_clients,
        n_items=train.n_items,
        width=algorithm.width,
        codec=codec,
        streams=streams,
    )
    cloak = VirtualRatings(VirtualRatingsConfig(rho=1.0), n_items=train.n_items, streams=streams)
    run = RecordedRun(
        algorithm=algorithm,
        stack=Stack(codec=codec, cloak=cloak, collector=collector, n_clients=train.n_clients),
        problem=rating_problem(algorithm, train, test),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1, 3)),
        directory=directory,
        cohort=CohortConfig(clients_per_round=40),
    )
    if batch_bytes is not None:
        assert isinstance(run.engine, LocalEngine)
        run.engine._batch_bytes = batch_bytes
    for _ in range(4):
        run.run_round()
    return run


def files(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in found}


def test_equal_settings_give_equal_bytes_and_claims(tmp_path: Path) -> None:
    """Two runs, and two other batch sizes: the transcript folder is the same to the byte."""
    sizes = {"first": None, "again": None, "small": 40 * 64, "large": 100_000 * 64}
    runs = {name: recorded(tmp_path / name, size) for name, size in sizes.items()}
    expected = files(tmp_path / "first" / "transcript")
    assert len([name for name in expected if name.startswith("rounds/")]) >= 4 * 4
    adversary = ADVERSARIES[3]
    for name, run in runs.items():
        assert files(tmp_path / name / "transcript") == expected, name
        assert run.table_digests == runs["first"].table_digests
        reopened = Transcript.open(tmp_path / name / "transcript").view(adversary)
        for attack in (SUITE[name] for name in NEEDS):
            claims = attack.run(run.transcript.view(adversary))
            assert isinstance(claims, Claims)
            assert same(claims, attack.run(runs["first"].transcript.view(adversary)))
            assert same(claims, attack.run(reopened))


@pytest.mark.parametrize("attack", SUITE.values(), ids=SUITE)
def test_an_attack_repeats_itself(federate: Federate, attack: Attack) -> None:
    """No hidden state: the second look at a view, and one after another view, says the same."""
    run, _ = federate(**FEDERATIONS["fedrec++"])
    other, _ = federate(**FEDERATIONS["sdcf"])
    coalition = ADVERSARIES[3]
    first = attack.run(run.transcript.view(coalition))
    attack.run(other.transcript.view(coalition))
    assert same(attack.run(run.transcript.view(coalition)), first)
