"""The attacks' own smoke alarm: controls pass on sound attacks and fail on broken ones."""

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from types import MappingProxyType

import numpy as np
import pytest

import attacks.planted.controls as controls
from attacks import SUITE, AttackCard, Claims, NotApplicable, attack_named
from attacks.base import Claim, Control, Controlled, Planted
from attacks.families.ratings.lattice import Lattice
from attacks.families.sums.subsets import MOST_ROWS
from attacks.planted import recording
from attacks.scoring.attributes import FeatureClaim
from attacks.scoring.clear_uploads import ClearUploadsClaim, LoneRowsClaim
from attacks.scoring.disclosures import DisclosureClaim
from attacks.scoring.drafts import DraftClaim
from attacks.scoring.held_out import HeldOutClaim
from attacks.scoring.links import Fits, LinkClaim
from attacks.scoring.measures import MEASURES
from attacks.scoring.organisations import SalesClaim
from attacks.scoring.pair_games import ChoiceClaim, MembershipClaim
from attacks.scoring.profiles import HistogramClaim, LabelClaim
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.ratings import RatingClaim
from attacks.scoring.sets import SetClaim
from attacks.scoring.vectors import VectorClaim
from attacks.scoring.virtual_rows import UnmaskedClaim
from secure_fedrec.core.arrays import FloatArray, RingArray
from secure_fedrec.errors import ConfigError, FedRecError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.wire import View
from tests.attacks.made import grid_of, rated_grids

Doctor = Callable[[View], None]


@pytest.fixture(autouse=True)
def fresh_controls() -> Iterator[None]:
    """Controls are cached per process; a doctored suite must not leave its results behind."""
    controls.positive_control.cache_clear()
    yield
    controls.positive_control.cache_clear()


def control_of(attack: Controlled, monkeypatch: pytest.MonkeyPatch) -> controls.ControlResult:
    """The control of one attack put in place of the suite."""
    monkeypatch.setattr(controls, "SUITE", MappingProxyType({attack.name: attack}))
    return controls.positive_control(attack.name)


class Wrapped:
    """An attack whose view or claims are tampered with."""

    def __init__(self, attack: Controlled) -> None:
        self.inner = attack
        self.name = attack.name
        self.card = attack.card
        self.control = attack.control

    def run(self, view: View) -> Claims | NotApplicable:
        raise NotImplementedError


class Constant(Wrapped):
    """Scores every pair alike and guesses accordingly: everything, or nothing."""

    def __init__(self, attack: Controlled, *, guess: bool) -> None:
        super().__init__(attack)
        self.guess = guess

    def run(self, view: View) -> Claims | NotApplicable:
        claims = self.inner.run(view)
        assert isinstance(claims, Claims)
        return replace(claims, made=tuple(self.same(each) for each in claims.made))

    def same(self, claim: Claim) -> Claim:
        """The same score, rating, vector, class, profile or draft for everybody."""
        match claim:
            case RatedSetClaim():
                grids = rated_grids(claim)
                guess = np.full(grids.scores.shape, self.guess)
                nothing = np.zeros(grids.scores.shape)
                return replace(grids, scores=nothing, predicted=guess, history={})
            case RatingClaim():
                return replace(claim, ratings=np.full(len(claim.items), 3.0))
            case LinkClaim():
                nobody = np.zeros(0, dtype=np.int64)
                none = Fits(nobody, nobody, len(claim.tags))
                return replace(claim, fits=dict.fromkeys(claim.fits, none))
            case LoneRowsClaim():
                return replace(claim, rows={})
            case ClearUploadsClaim():
                return replace(claim, read={})
            case UnmaskedClaim():
                visible = grid_of(claim.visible)
                return replace(claim, visible=visible, proven=np.zeros_like(visible))
            case HeldOutClaim():
                return replace(claim, scores=np.zeros(grid_of(claim.scores).shape), history={})
            case LabelClaim() | SetClaim():
                even = replace(claim, scores=np.zeros_like(claim.scores))
                return replace(even, predicted=None) if isinstance(even, SetClaim) else even
            case HistogramClaim():
                return replace(claim, shares=np.full_like(claim.shares, 1 / claim.shares.shape[1]))
            case FeatureClaim():
                return replace(claim, features=np.ones_like(claim.features))
            case SalesClaim():
                return replace(claim, vectors=tuple(map(np.ones_like, claim.vectors)))
            case MembershipClaim() | ChoiceClaim():
                return replace(claim, matrix=np.ones_like(claim.matrix))
            case VectorClaim() | DraftClaim():
                return replace(claim, vectors=np.ones_like(claim.vectors))
        assert isinstance(claim, DisclosureClaim)
        return replace(claim, parts=())


class Silent(Wrapped):
    """Finds itself not applicable."""

    def run(self, view: View) -> Claims | NotApplicable:
        return NotApplicable(reason="lost its way")


class Doctored(Wrapped):
    """Runs on a view that was changed first."""

    def __init__(self, attack: Controlled, doctor: Doctor) -> None:
        super().__init__(attack)
        self.doctor = doctor

    def run(self, view: View) -> Claims | NotApplicable:
        self.doctor(view)
        return self.inner.run(view)


FLOORS = {
    "direct": ("auc", 0.9),
    "intersection": ("auc", 0.99),
    "lattice": ("rating_accuracy", 0.99),
    "collusion-linkage": ("linked_share", 0.99),
    "denoiser-sums": ("unmasked_share", 0.9),
    "denoiser-exposure": ("precision", 1.0),
    "sum-decoding": ("clients_exposed", 10.0),
    "subset-regression": ("support_auc", 0.95),
    "dense-layer": ("reidentified_share", 1.0),
    "output-bias": ("label_accuracy", 0.9),
    "touched-rows": ("exact_set_share", 1.0),
    "signed-rows": ("auc", 0.99),
    "attribute-inference": ("attribute_auc", 0.95),
    "attribute-counts": ("histogram_correlation", 0.9),
    "drafts": ("disclosed_share", 0.16),
    "never-touched": ("held_out_auc", 0.9),
    "score-vector": ("reidentified_share", 0.9),
    "item-sales": ("item_sales_correlation", 0.8),
    "partner-members": ("member_auc", 0.9),
    "clear-uploads": ("clear_clients", 10.0),
    "virtual-row-vectors": ("clients_exposed", 10.0),
    "moved-rows": ("clients_exposed", 10.0),
    "lone-rows": ("lone_clients", 10.0),
    "co-occurrence-rows": ("clients_exposed", 10.0),
    "co-occurrence-persons": ("clients_exposed", 10.0),
    "co-occurrence-membership": ("membership_auc", 0.9),
    "co-occurrence-choice": ("choice_auc", 0.8),
}


# --- sound attacks --------------------------------------------------------------------------------


def test_every_attack_has_a_floor_and_reaches_it() -> None:
    for name in SUITE:
        result = controls.positive_control(name)
        assert result.passed, name
        assert (result.metric, result.floor) == FLOORS[name]
        assert result.value is not None
        top = MEASURES[result.metric].scale.unit.high
        assert result.floor <= result.value <= (np.inf if top is None else top)


def test_controls_run_once_per_process() -> None:
    assert controls.positive_control("direct") is controls.positive_control("direct")


def test_controls_are_reproducible() -> None:
    first = [controls.positive_control(name) for name in SUITE]
    controls.positive_control.cache_clear()
    controls.planted_for.cache_clear()
    assert [controls.positive_control(name) for name in SUITE] == first


@pytest.mark.parametrize(
    ("value", "passed"), [(None, False), (0.0, False), (0.89, False), (0.9, True), (1.0, True)]
)
def test_a_control_passes_from_its_floor_on(value: float | None, passed: bool) -> None:
    assert controls.ControlResult(metric="auc", value=value, floor=0.9).passed is passed


@pytest.mark.parametrize("place", controls.FEDERATIONS)
def test_every_federation_holds_the_secrets_of_its_controls(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Planted] = []

    def told(planted: Planted) -> FloatArray:
        asked.append(planted)
        return np.ones(3)

    mine = Silent(SUITE["direct"])
    mine.control = Control(measure="auc", on=place, secrets={"amounts.mine": told})
    monkeypatch.setattr(recording, "SUITE", {"mine": mine})
    _, truth = controls.FEDERATIONS[place]()
    assert list(truth.of_kind("amounts")) == ["mine"]
    assert all(len(values) for values in asked[0].values())


# --- broken attacks -------------------------------------------------------------------------------


@pytest.mark.parametrize("guess", [True, False], ids=["everything", "nothing"])
@pytest.mark.parametrize("attack", SUITE.values(), ids=SUITE)
def test_constant_scores_fail_the_control(
    attack: Controlled, guess: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not control_of(Constant(attack, guess=guess), monkeypatch).passed


@pytest.mark.parametrize("attack", SUITE.values(), ids=SUITE)
def test_an_attack_that_finds_itself_not_applicable_fails_the_control(
    attack: Controlled, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = control_of(Silent(attack), monkeypatch)
    assert result.value is None
    assert not result.passed


# --- mutations of the lattice decode --------------------------------------------------------------


class _Negated(FixedPoint):
    """Decodes every row with the wrong sign."""

    def decode(self, ring: RingArray, *, spent: bool = False) -> FloatArray:
        return -FixedPoint.decode(self, ring, spent=spent)


def _believe(view: View, key: str, value: object) -> None:
    view.public = MappingProxyType({**view.public, key: value})


def _flip_rows(view: View) -> None:
    codec = view.codec
    view.codec = _Negated(bits=codec.bits, fraction_bits=codec.fraction_bits, clip=codec.clip)


def _scale_regularization(factor: float) -> Doctor:
    def doctor(view: View) -> None:
        algorithm = dict(view.public["algorithm"])
        algorithm["regularization"] *= factor
        _believe(view, "algorithm", algorithm)

    return doctor


def _shift_levels(view: View) -> None:
    _believe(view, "rating_levels", [level + 0.5 for level in view.public["rating_levels"]])


class _RolledTable(View):
    """Pairs every row with the vector of the next item."""

    __slots__ = ()

    def table(self, round_: int, *, after: bool = False) -> FloatArray:
        return np.roll(super().table(round_, after=after), 1, axis=0)


class OnRolledTable(Wrapped):
    """Runs on item labels shifted by one."""

    def run(self, view: View) -> Claims | NotApplicable:
        return self.inner.run(_RolledTable(view._store, view.public, view.adversary))


MUTANTS: dict[str, Callable[[], Controlled]] = {
    "flipped-sign": lambda: Doctored(Lattice(), _flip_rows),
    "dropped-regularizer": lambda: Doctored(Lattice(), _scale_regularization(0.0)),
    "negated-regularizer": lambda: Doctored(Lattice(), _scale_regularization(-1.0)),
    "doubled-regularizer": lambda: Doctored(Lattice(), _scale_regularization(2.0)),
    "shifted-scale": lambda: Doctored(Lattice(), _shift_levels),
    "shifted-items": lambda: OnRolledTable(Lattice()),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_control_catches_mutations_of_the_decode(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = control_of(MUTANTS[mutant](), monkeypatch)
    assert result.metric == "rating_accuracy"
    assert result.value is not None
    assert result.value < 0.6
    assert not result.passed


def test_doctoring_nothing_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness of the mutants is neutral: without a mutation the control passes."""
    untouched = Doctored(Lattice(), _scale_regularization(1.0))
    assert control_of(untouched, monkeypatch).value == 1.0


# --- the list -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SUITE)
def test_every_attack_explains_itself(name: str) -> None:
    attack = SUITE[name]
    assert attack.name == name
    assert attack_named(name) is attack
    assert name == name.lower()
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyz-")
    for field in fields(attack.card):
        text = getattr(attack.card, field.name)
        assert isinstance(text, str)
        assert len(text.split()) >= 2, field.name
        assert text == text.strip()
        assert text.endswith("."), field.name
        assert "  " not in text


def test_a_card_is_the_docstring_and_lacks_no_paragraph() -> None:
    words = "\n".join(
        f"    {each.name.capitalize()}: One\n        two." for each in fields(AttackCard)
    )
    card = AttackCard.read(f"Attacks.\n\n{words}\n\n    Args:\n        round_: which.\n    ")
    assert {getattr(card, each.name) for each in fields(card)} == {"One two."}
    with pytest.raises(TypeError, match="limits"):
        AttackCard.read(words.partition("    Limits")[0])
    assert AttackCard.read(None).game == ""  # of an interpreter that strips docstrings


def test_the_most_rows_of_a_search_are_told() -> None:
    assert f"more than {MOST_ROWS} clients" in SUITE["denoiser-sums"].card.limits


def test_names_and_games_are_unique() -> None:
    assert len({attack.name for attack in SUITE.values()}) == len(SUITE)
    assert len({attack.card.game for attack in SUITE.values()}) == len(SUITE)
    assert len({attack.card.statistic for attack in SUITE.values()}) == len(SUITE)


@pytest.mark.parametrize("name", ["", "Direct", "lattice ", "membership"])
def test_an_unknown_attack_is_refused_with_the_choices(name: str) -> None:
    with pytest.raises(ConfigError, match="unknown attack") as caught:
        attack_named(name, key="audit.attacks")
    assert caught.value.key == "audit.attacks"
    assert caught.value.value == name
    assert caught.value.choices == tuple(SUITE)
    assert isinstance(caught.value, FedRecError)


def test_the_suite_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        SUITE["direct"] = SUITE["lattice"]  # type: ignore[index]
