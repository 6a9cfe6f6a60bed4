"""Coalitions against every stack: refused by name, or attacked with what they know taken out.

The server and all clients but one read the last client's rows as a difference of sums, whatever hid
the uploads; an audit that forgets what they know finds that they learn nothing.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from attacks import Finding, GroundTruth
from attacks.view.coalition import others_sum, others_vectors, rows_of
from attacks.view.knowledge import Knowledge
from audits.config.audit import parse_config
from audits.run.audit import attack_all
from audits.run.build import Federation, build_federation, load_dataset
from audits.run.training import open_run, train_recorded
from audits.run.truth import ground_truth
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import BAG_STACKS, STACKS
from secure_fedrec.wire import Adversary, OwnUploads, Step, Transcript

pytestmark = pytest.mark.claim("coalition-refused-or-attacked")

CLIENTS, ITEMS = 10, 24
SETTINGS: dict[str, dict[str, Any]] = {
    "virtual-ratings": {"sticky": True},
    "denoisers": {"count": 2},
    "shared-upload": {"count": 2, "floor": 2},
    "skellam": {"noise_multiplier": 0.5},
}
CLOAKS = {"virtual-ratings", "randomized-response"}
REFUSED_KEYS = {"adversaries.corrupt", "protection.corrupt"}

ALL_BUT_ONE = ("server", *(f"client:{number}" for number in range(CLIENTS - 1)))
ALL_BUT_TWO = ALL_BUT_ONE[:-1]
COALITIONS = {"server + 1": ALL_BUT_ONE[:2], "all - 1": ALL_BUT_ONE, "all - 2": ALL_BUT_TWO}


class Run(NamedTuple):
    """A recorded run, and what attacks on it are judged by."""

    federation: Federation[Any]
    transcript: Transcript
    truth: GroundTruth

    def attacked(self, adversary: Adversary) -> list[Finding]:
        names = [name for name in self.federation.config.attacks if name != "subset-regression"]
        found = attack_all(self.transcript, self.truth, [adversary], names, seed=1, bars=False)
        return [finding for finding in found if finding.measured]


def settings_of(stack: Sequence[str], corrupt: Sequence[str]) -> dict[str, Any]:
    return {
        "data": {"name": "synthetic", "clients": CLIENTS, "items": ITEMS, "mean_ratings": 9},
        # On a scale around 0 a vector is told up to its side alone.
        "algorithm": {"name": "pmf", "rank": 16, "rounds": 2, "normalise_ratings": False},
        "recording": {"payload_rounds": [1, 2]},
        "protection": [{"layer": layer, **SETTINGS.get(layer, {})} for layer in stack],
        "adversaries": [{"name": "them", "corrupt": list(corrupt)}],
    }


def drafts_of(stack: Sequence[str], corrupt: Sequence[str]) -> dict[str, Any]:
    return {
        "attacks": ["drafts"],
        "data": {"name": "synthetic", "clients": 5, "users": 8, "items": 14, "mean_records": 6.0},
        "algorithm": {
            "name": "hpfl",
            "rounds": 2,
            "user_drafts": 0.5,
            "gum": {"scale": 5.0, "start": "identity"},
            "training": {"epochs": 1},
        },
        "recording": {"payload_rounds": [1, 2]},
        "bag_protection": [{"layer": layer} for layer in stack],
        "adversaries": [{"name": "them", "corrupt": list(corrupt)}],
    }


def federation_of(settings: dict[str, Any]) -> Federation[Any]:
    config = parse_config(settings)
    dataset = load_dataset(config, None)
    return build_federation(config, dataset.task(dataset.folds[0]))


def recorded(settings: dict[str, Any], folder: Path) -> Run:
    federation = federation_of(settings)
    run = open_run(federation, folder, resume=False)
    train_recorded(federation, run, folder, progress=False)
    truth = ground_truth(
        federation.task.secrets(),
        run.truth,
        name=federation.config.data.name,
        denoisers=federation.denoiser_clients,
    )
    return Run(federation, run.transcript, truth)


@pytest.fixture(scope="module", params=list(STACKS), ids=lambda stack: " + ".join(stack) or "none")
def stack(request: pytest.FixtureRequest) -> tuple[str, ...]:
    found: tuple[str, ...] = request.param
    return found


@pytest.fixture(scope="module")
def run(stack: tuple[str, ...]) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        yield recorded(settings_of(stack, ["server"]), Path(folder))


def refused(settings: dict[str, Any]) -> ConfigError | None:
    try:
        federation_of(settings)
    except ConfigError as error:
        return error
    return None


@pytest.mark.parametrize("name", list(COALITIONS))
def test_a_coalition_is_refused_by_name_or_reads_the_sum_of_the_others(
    stack: tuple[str, ...], run: Run, name: str
) -> None:
    them = Adversary(name="them", corrupt=frozenset(COALITIONS[name]))
    error = refused(settings_of(stack, COALITIONS[name]))
    if error is not None:
        assert error.key in REFUSED_KEYS
        assert "'them' has" in str(error)
        assert error.choices
        return
    found = run.attacked(them)
    assert found, "no attack was measured"
    if name == "server + 1":  # what one more client gives is below, exactly
        return
    # With virtual rows inside, sums tell no more than the uploads that the server reads anyway.
    inside = stack == ("virtual-ratings",)
    assert max(finding.figures.get("auc") or 0.0 for finding in found) > (0.7 if inside else 0.85)


def test_what_is_left_of_a_sum_is_the_sum_of_the_others(stack: tuple[str, ...], run: Run) -> None:
    them = Adversary(name="them", corrupt=frozenset(ALL_BUT_TWO))
    known = run.truth.corrupted_clients(them)
    view = run.transcript.view(them, own=OwnUploads(run.truth.recorded, known))
    honest = OwnUploads(run.truth.recorded, frozenset(range(CLIENTS)) - known).uploads(1)
    _, released = rows_of(view.messages(Step.AGGREGATE, 1, payload=True))
    left = others_sum(view, 1, payload=True)
    assert left.values is not None and left.counts is not None and released.values is not None
    if honest is None or not Knowledge.of(view).sums_are_real:
        # Without a layer nothing is recorded twice; with virtual rows inside nothing is taken out.
        assert not {"denoisers", "shared-upload", "masking", "paillier"} & {*stack}
        assert np.array_equal(left.values, released.values)
        return
    assert not np.array_equal(left.values, released.values)
    _, block = rows_of(honest)
    expected = np.zeros_like(left.values)
    assert block.values is not None
    np.add.at(expected, block.rows, block.values)
    counts = np.bincount(block.rows, minlength=ITEMS)
    assert counts.sum() > 0
    if "skellam" not in stack:
        assert np.array_equal(left.values, view.codec.reduce(expected))
        assert np.array_equal(left.counts, counts)


def test_nobody_attacks_where_nobody_is_left(stack: tuple[str, ...]) -> None:
    error = refused(settings_of(stack, [*ALL_BUT_ONE, f"client:{CLIENTS - 1}"]))
    assert error is not None
    assert "no client is left" in str(error)


@pytest.mark.parametrize(
    "stack",
    [stack for stack in STACKS if {"denoisers", "shared-upload"} & {*stack}],
    ids=" + ".join,
    indirect=True,
)
@pytest.mark.parametrize(
    "corrupt",
    [("server", "client:0"), ("denoisers", "client:0"), ("server", "denoisers", "client:0")],
    ids=" + ".join,
)
def test_holders_and_clients_together_are_attacked(run: Run, corrupt: tuple[str, ...]) -> None:
    found = run.attacked(Adversary(name="them", corrupt=frozenset(corrupt)))
    if "server" in corrupt:
        assert found
    if {"server", "denoisers"} <= {*corrupt}:
        assert max(finding.figures.get("auc") or 0.0 for finding in found) > 0.9


@pytest.mark.parametrize("stack", [("masking",), ("paillier",)], ids="".join, indirect=True)
def test_the_rows_of_the_last_client_are_the_difference(run: Run, stack: tuple[str, ...]) -> None:
    # The masks' claim covers no such coalition: the attack is shown on the recording itself.
    them = Adversary(name="them", corrupt=frozenset(ALL_BUT_ONE))
    (finding,) = [each for each in run.attacked(them) if each.attack == "sum-decoding"]
    ratings = run.truth.ratings
    rated = int(np.count_nonzero(ratings.clients == CLIENTS - 1))
    assert finding.figures["recall"] == finding.figures["precision"] == 1.0
    assert finding.details["pairs_proven_real"] == rated > 0
    assert finding.details["pseudonyms_named"] > 0
    assert finding.figures["interactions_exposed"] == rated
    assert finding.figures["largest_profile"] == finding.figures["vectors_exposed"] == 1


# Clients alone: the step from one public table to the next is the mean, no server is needed for it.

TABLES_TELL = [
    stack
    for stack in STACKS
    if not {"skellam", "gaussian", "laplace"} & {*stack}
    and (not CLOAKS & {*stack} or {"denoisers", "shared-upload"} & {*stack})
]


def clients_alone(run: Run, left: int) -> Finding:
    corrupt = frozenset(f"client:{number}" for number in range(CLIENTS - left))
    them = Adversary(name="them", corrupt=corrupt)
    (found,) = attack_all(run.transcript, run.truth, [them], ["sum-decoding"], seed=1, bars=False)
    return found


@pytest.mark.claim("public-tables")
def test_all_clients_but_one_read_the_items_of_the_last_one(
    stack: tuple[str, ...], run: Run
) -> None:
    found = clients_alone(run, 1)
    assert found.measured == (stack in TABLES_TELL), found.reason
    if not found.measured:
        assert "noise" in (found.reason or "")
        return
    ratings = run.truth.ratings
    mine = np.flatnonzero(ratings.clients == CLIENTS - 1)
    sent = len(mine)
    if "randomized-response" in stack:  # which of its items it reports is its coin's
        assert found.figures["precision"] == 1.0
        assert 0 < found.details["items_moved"] <= sent
        return
    assert found.figures["precision"] == found.figures["recall"] == 1.0
    assert 0 < found.details["items_moved"] == sent < ITEMS
    # Of rows in one direction the ratings follow, and the private vector.
    assert found.rounds == (1, 2)
    assert found.figures["interactions_exposed"] == sent
    assert found.figures["largest_profile"] == found.figures["vectors_exposed"] == 1
    assert found.figures["disclosures_wrong"] == 0


@pytest.mark.claim("public-tables")
def test_two_clients_are_not_told_apart_and_one_client_reads_the_tail(
    stack: tuple[str, ...], run: Run
) -> None:
    if stack not in TABLES_TELL or "randomized-response" in stack:
        return
    ratings = run.truth.ratings
    pair = clients_alone(run, 2)
    union = np.unique(ratings.items[ratings.clients >= CLIENTS - 2])
    assert pair.details["items_moved"] == len(union)
    assert pair.figures["disclosures_wrong"] == 0
    assert pair.figures["vectors_exposed"] == 2
    alone = clients_alone(run, CLIENTS - 1)
    assert alone.measured
    assert (
        alone.figures["precision_gain_low"] or 0.0
    ) < 0.1  # of itself it subtracts, the rest is a crowd


def test_where_rows_are_left_out_of_the_sum_nothing_moves(tmp_path: Path) -> None:
    """A tail floor: an item whose sum was withheld does not count as rated by the others."""
    settings = settings_of(("masking",), ["client:0"])
    settings["protection"][0]["tail_floor"] = 4
    run = recorded(settings, tmp_path)
    found = clients_alone(run, 1)
    counts = np.bincount(run.truth.ratings.items, minlength=ITEMS)
    last = run.truth.ratings.items[run.truth.ratings.clients == CLIENTS - 1]
    assert (counts[last] < 4).any()
    assert found.details["items_moved"] == (counts[last] >= 4).sum() > 0
    assert found.figures["precision"] == 1.0


@pytest.mark.parametrize("stack", list(BAG_STACKS), ids=lambda stack: " + ".join(stack) or "none")
@pytest.mark.parametrize("others", [1, 2, 4])
def test_coalitions_against_bags(stack: tuple[str, ...], others: int, tmp_path: Path) -> None:
    corrupt = ["server", *(f"client:{number}" for number in range(5 - others))]
    settings = drafts_of(stack, corrupt)
    error = refused(settings)
    if "routing" in stack and others == 1:
        assert error is not None and error.key == "adversaries.corrupt"
        assert "withstands 3 clients" in str(error)
        return
    assert error is None
    run = recorded(settings, tmp_path)
    (adversary,) = run.federation.config.adversaries
    known = OwnUploads(run.truth.recorded, run.truth.corrupted_clients(adversary))
    view = run.transcript.view(adversary, own=known)
    for bag in view.bags(1):
        every = view.messages(Step.BAG, 1, payload=True, bag=bag)
        left = others_vectors(view, 1, bag)
        assert 0 < len(left) < len(every)
        if "routing" in stack:
            assert len(left) == len(every) * others // 5  # every client hands in as many cells
        else:
            assert left.senders.ids.tolist() == list(range(5 - others, 5))
    assert [finding.attack for finding in run.attacked(adversary)] == ["drafts"]


@pytest.mark.claim("certain-is-right")
@pytest.mark.parametrize("count", [0, 1, 5, CLIENTS - 1])
@pytest.mark.parametrize("server", [True, False], ids=["with server", "clients alone"])
def test_nothing_that_sums_prove_is_false(run: Run, count: int, server: bool) -> None:
    """Of any stack: denoisers whose rows are in sums that they sent nothing to, reports by coin."""
    parties = [*(("server",) if server else ()), *(f"client:{each}" for each in range(count))]
    if not parties:
        return
    them = Adversary(name="them", corrupt=frozenset(parties))
    (found,) = attack_all(run.transcript, run.truth, [them], ["sum-decoding"], seed=1, bars=False)
    if found.measured:
        assert found.figures["disclosures_wrong"] == 0
        assert found.figures.get("precision") in (None, 1.0) or not server
