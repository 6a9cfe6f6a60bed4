"""Attacks on hierarchical personalization: on planted organisations and on HPFL itself."""

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from attacks import SUITE, Attack, Claims, Finding, GroundTruth, attack_named, evaluate
from attacks.families.hierarchical import ATTRIBUTES
from attacks.planted.organisations import plant_organisations
from attacks.planted.split import plant_split
from secure_fedrec.algorithms.hpfl.client_update import count_attributes
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.drafts import cluster_centres
from secure_fedrec.algorithms.hpfl.system import HPFL
from secure_fedrec.data.organisations.synthetic import (
    SyntheticOrganisationsConfig,
    generate_organisations,
)
from secure_fedrec.engines import Problem, RecordedRun
from secure_fedrec.evaluation.intervals import mean_interval
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.gum.arrays import Records
from secure_fedrec.models.gum.model import GUMConfig
from secure_fedrec.models.gum.training import GUMTraining
from secure_fedrec.protection.bags import BagShape, LocalDPConfig
from secure_fedrec.protection.base.record import Sizes
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.protection.stacking import build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Adversary, BlockStore, RecordingPolicy, Transcript
from secure_fedrec.wire.spool import Columns
from tests.attacks.differencing import leaver, leaver_cosines

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
PER_ROW = frozenset({"rows", "counts", "values"})
HPFL_ATTACKS = ("attribute-counts", "drafts")
MASKS: Mapping[str, Any] = {"masking": MaskingLayerConfig()}
ROUTES: Mapping[str, Any] = {"routing": RoutingLayerConfig()}
NOISE: Mapping[str, Any] = {"local-dp": LocalDPConfig(clip=2.0, noise_multiplier=2.0)}


@cache
def federation(
    *, components: str = "both", drafts: float = 0.3, layers: str = "", bag_layers: str = ""
) -> tuple[RecordedRun, GroundTruth]:
    """HPFL on eight synthetic organisations, two rounds recorded."""
    data = SyntheticOrganisationsConfig(clients=8, users=24, items=60, attributes=6, seed=3)
    organisations = generate_organisations(data)
    config = HPFLConfig(
        rounds=2,
        components=components,
        user_drafts=drafts,
        item_drafts=drafts,
        quantile=0.0,
        gum=GUMConfig(scale=5.0),
        training=GUMTraining(epochs=3),
    )
    algorithm = HPFL(config, organisations)
    streams, codec, vault = Streams.from_seed(2), FixedPoint(), organisations.vault()
    sizes = Sizes(
        n_clients=8,
        n_items=algorithm.rows,
        width=algorithm.width,
        cohort=8,
        bags={name: BagShape(width=w, most=m) for name, (w, m) in algorithm.bag_sizes.items()},
    )
    run = RecordedRun(
        algorithm=algorithm,
        stack=build_stack(
            {"masking": MASKS["masking"]} if layers else {},
            sizes=sizes,
            codec=codec,
            streams=streams,
            bag_layers={"": {}, "routing": ROUTES, "local-dp": NOISE}[bag_layers],
        ),
        problem=Problem(vault=vault, n_rows=algorithm.rows),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1, 2)),
    )
    for _ in range(2):
        run.run_round()
    counts = []
    for client, attributes in enumerate(organisations.attributes):
        own = organisations.train.of(client)
        counts.append(count_attributes(Records(own.users, own.items, own.scores), attributes))
    histogram = np.stack(counts).astype(np.float64)
    truth = GroundTruth(
        recorded=run.truth,
        secrets={f"histograms.{ATTRIBUTES}": histogram, f"sets.{ATTRIBUTES}": histogram > 0},
    )
    return run, truth


@cache
def planted(kind: str = "") -> tuple[RecordedRun, GroundTruth]:
    layers = MASKS if kind == "masking" else None
    bag_layers = {"routing": ROUTES, "local-dp": NOISE}.get(kind)
    return plant_organisations(layers=layers, bag_layers=bag_layers)


def reads_items(attack: Attack) -> bool:
    return bool(getattr(attack, "reads_item_rows", True))


def play(name: str, case: tuple[RecordedRun, GroundTruth], who: Adversary = SERVER) -> Finding:
    run, truth = case
    return evaluate(attack_named(name), who, run.transcript, truth, seed=0)


def figure(finding: Finding, name: str) -> float:
    value = finding.figures[name]
    assert value is not None
    return value


# --- the profile of an organisation ---------------------------------------------------------------


def test_weights_tell_an_organisations_profile() -> None:
    finding = play("attribute-counts", planted())
    assert figure(finding, "histogram_error") < 0.06  # accuracies differ by a fifth
    assert figure(finding, "histogram_error_lift_low") > 0.4
    assert figure(finding, "histogram_correlation") > 0.97
    assert figure(finding, "activity_correlation") > 0.95
    assert figure(finding, "set_exact_share") == 1.0  # an attribute without records is not sent
    assert finding.null_control is not None
    assert finding.null_control["passed"]


def test_hpfl_tells_the_profile_of_each_client() -> None:
    """Close and not exact: of so few records, accuracies differ a lot between attributes."""
    finding = play("attribute-counts", federation())
    assert figure(finding, "histogram_error_high") < 0.3
    assert figure(finding, "histogram_error") < figure(finding, "histogram_error_chance")
    assert figure(finding, "histogram_correlation_low") > 0.4


@pytest.mark.parametrize("case", [planted, federation], ids=["planted", "hpfl"])
def test_under_masking_profiles_are_at_chance(case: Any) -> None:
    hidden = planted("masking") if case is planted else federation(layers="masking")
    finding = play("attribute-counts", hidden)
    for metric in ("histogram_correlation_lift", "histogram_error_lift", "set_lift"):
        if finding.figures.get(metric) is not None:
            low, high = (figure(finding, f"{metric}_{end}") for end in ("low", "high"))
            assert low <= 0.0 <= high, metric
    assert finding.null_control is not None
    assert finding.null_control["passed"]


# --- drafts ---------------------------------------------------------------------------------------


def test_members_alone_in_their_cluster_are_disclosed() -> None:
    """One of six members stands alone in its group, by construction: exactly those are found."""
    finding = play("drafts", planted())
    assert finding.rounds == (1,)  # of round 2 nothing is known afterwards
    for prefix in ("", "item_"):
        assert figure(finding, f"{prefix}disclosed_share") == pytest.approx(4 / 24)
        assert figure(finding, f"{prefix}holder_lift_low") > 0.5
    assert figure(finding, "holder_chance") == pytest.approx(1 / 30, abs=0.005)
    assert figure(finding, "disclosed_attribute_auc") > 0.95  # the attribute is a sign in it
    assert finding.units["clients"] == 30 * 24


def test_a_cluster_per_user_discloses_every_user() -> None:
    finding = play("drafts", federation(drafts=1.0))
    assert figure(finding, "disclosed_share") > 0.95  # k-means may leave two in one cluster
    coarse = play("drafts", federation(drafts=0.1))
    assert figure(coarse, "disclosed_share") < 0.2
    assert figure(coarse, "holder_lift_low") > 0.0


def test_routing_hides_places_and_not_vectors() -> None:
    for named, mixed in (
        (planted(), planted("routing")),
        (federation(), federation(bag_layers="routing")),
    ):
        before, after = play("drafts", named), play("drafts", mixed)
        assert after.figures["disclosed_share"] == before.figures["disclosed_share"]
        assert after.figures["item_disclosed_share"] == before.figures["item_disclosed_share"]
        assert "holder_accuracy" in before.figures
        assert "holder_accuracy" not in after.figures


def test_noise_hides_vectors() -> None:
    for clear, noisy in (
        (planted(), planted("local-dp")),
        (federation(), federation(bag_layers="local-dp")),
    ):
        before, after = play("drafts", clear), play("drafts", noisy)
        assert figure(before, "disclosed_share") > 0.0
        assert figure(after, "disclosed_share") == 0.0
        assert figure(after, "item_disclosed_share") == 0.0
        assert figure(after, "holder_accuracy") < figure(before, "holder_accuracy")
    told = play("drafts", planted("local-dp")).figures
    assert [told[f"disclosed_attribute_auc{end}"] for end in ("", "_low", "_high")] == [None] * 3


def test_drafts_of_the_adversarys_own_organisation_are_not_counted() -> None:
    own = Adversary(name="own", corrupt=frozenset({"server", "client:0", "client:5"}))
    finding = play("drafts", planted(), own)
    assert finding.units["clients"] == 28 * 24


# --- a member that leaves -------------------------------------------------------------------------


def single_draft(points: Any) -> Any:
    return cluster_centres(points, 0.05, seed=1)


def test_a_member_that_leaves_is_the_difference_of_two_drafts() -> None:
    """HPFL's own clustering, of its own user vectors: clients with fewer than 20 send one draft."""
    run, _ = federation()
    members = run.engine.vault.read_ragged("user_embeddings", 3)[:12]
    cosines = leaver_cosines(members, single_draft)
    assert cosines.shape == (12,)
    np.testing.assert_allclose(cosines, 1.0, atol=1e-9)
    interval = mean_interval(cosines, seed=0, span=2.0)
    assert interval.low > 0.5  # twelve members bound no share of the others from close by
    one = leaver(members.mean(axis=0), members[1:].mean(axis=0), 12)
    np.testing.assert_allclose(one, members[0], atol=1e-12)


def test_noise_is_multiplied_by_the_number_of_members() -> None:
    rng = np.random.default_rng(0)
    members = rng.normal(size=(15, 8))

    def noisy(points: Any) -> Any:
        return single_draft(points) + rng.normal(scale=0.5, size=(1, 8))

    assert abs(leaver_cosines(members, noisy).mean()) < 0.5


def test_more_than_one_draft_leaves_no_difference_to_take() -> None:
    members = np.random.default_rng(0).normal(size=(10, 3))
    assert not len(leaver_cosines(members, lambda points: cluster_centres(points, 0.3, seed=1)))
    with pytest.raises(ValueError, match="single member"):
        leaver(members[0], members[1], 1)


# --- what is not there ----------------------------------------------------------------------------


def test_components_that_stay_home_are_not_attacked() -> None:
    without_drafts = play("drafts", federation(components="public"))
    assert without_drafts.reason in {
        "the view holds no vectors for a bag",
        "no vectors for a bag were recorded",
    }
    without_vectors = play("attribute-counts", federation(components="private"))
    assert without_vectors.reason == "no client sent a vector of an attribute"


@pytest.mark.parametrize("name", HPFL_ATTACKS)
def test_attacks_on_organisations_do_not_apply_elsewhere(name: str) -> None:
    assert not play(name, plant_split()).measured


@pytest.mark.parametrize("name", [name for name in SUITE if name not in HPFL_ATTACKS])
def test_other_attacks_do_not_apply_to_hpfl(name: str) -> None:
    """Among them ``dense-layer``: a client's changes of KM and RM mix all of its users."""
    assert not play(name, federation()).measured


@pytest.mark.parametrize("name", [n for n, one in SUITE.items() if not reads_items(one)])
def test_the_order_in_which_a_simulator_worked_does_not_matter(name: str) -> None:
    """Blocks of a recording come in any order; the view puts messages in that of their arrival."""
    run, _ = planted() if name in HPFL_ATTACKS else plant_split(implicit=name == "signed-rows")
    store, dealt = run.transcript._store, BlockStore(None)
    rng = np.random.default_rng(0)
    for round_ in store.rounds():
        for kind in ("model", "upload", "aggregate", "bag.user-drafts", "bag.item-drafts"):
            for columns in store.read(round_, kind):
                one_by_one = messages_of(columns) if "lengths" in columns else [columns]
                for place in rng.permutation(len(one_by_one)):
                    dealt.append(round_, kind, one_by_one[place])
    attack = attack_named(name)
    view = Transcript(dealt, run.transcript.public).view(SERVER)
    before, after = attack.run(run.transcript.view(SERVER)), attack.run(view)
    assert repr(before) == repr(after)
    if name in HPFL_ATTACKS or name == "dense-layer":
        assert isinstance(after, Claims)


def messages_of(columns: Columns) -> list[Columns]:
    """A block, message by message."""
    ends = np.cumsum(columns["lengths"])
    found = []
    for place, (start, stop) in enumerate(zip(ends - columns["lengths"], ends, strict=True)):
        found.append(
            {
                name: column[start:stop] if name in PER_ROW else column[place : place + 1]
                for name, column in columns.items()
            }
        )
    return found


@pytest.mark.parametrize("name", HPFL_ATTACKS)
def test_who_holds_no_server_learns_nothing_of_others(name: str) -> None:
    who = Adversary(name="outsider", corrupt=frozenset({"client:3"}))
    assert not play(name, planted(), who).measured
