"""Records of layers: what is not stated is refused, and tables follow from what is."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from attacks import NotApplicable
from attacks.base import Claims
from attacks.families.rated_set import Intersection
from attacks.families.ratings.lattice import Lattice
from attacks.families.sums.denoisers import DenoiserExposure
from attacks.families.sums.regression import SubsetRegression
from attacks.families.sums.sum_decoding import SumDecoding
from attacks.scoring.games import evaluate
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.truth import GroundTruth
from attacks.view.knowledge import Knowledge, UnknownTraitError
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import LAYERS, RECORDS, STACKS, Sizes, Subject, build_stack
from secure_fedrec.protection.base.compatibility import makers_of, stacks_of
from secure_fedrec.protection.base.record import ROLES
from secure_fedrec.protection.layers import claims_about
from secure_fedrec.streams import Streams
from secure_fedrec.traits import AS_BEFORE, BARE, Traits
from secure_fedrec.wire import Adversary, RecordingPolicy, Transcript

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
TABLE = generate(SyntheticConfig(clients=20, items=30, mean_ratings=6.0, seed=2))
CLOAK = RECORDS["virtual-ratings"]


@pytest.fixture(scope="module")
def run() -> RecordedRun:
    streams, algorithm = Streams.from_seed(3), PMF(PMFConfig.printed(rank=3, rounds=2))
    layers = {"virtual-ratings": LAYERS["virtual-ratings"](sticky=True)}
    layers["denoisers"] = LAYERS["denoisers"]()
    sizes = Sizes(n_clients=20, n_items=30, width=3, cohort=20)
    made = RecordedRun(
        algorithm=algorithm,
        stack=build_stack(layers, sizes=sizes, codec=FixedPoint(), streams=streams),
        problem=rating_problem(algorithm, TABLE),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1, 2)),
    )
    made.run_round()
    made.run_round()
    return made


def stated(run: RecordedRun, where: str, **traits: Any) -> Transcript:
    """The same recording with other traits; one that is None is not stated."""
    public = dict(run.transcript.public)
    told = {**public[where]["traits"], **traits}
    kept = {name: value for name, value in told.items() if value is not None}
    return run.transcript.stating({**public, where: {**public[where], "traits": kept}})


def test_traits_travel_with_the_transcript(run: RecordedRun) -> None:
    known = Knowledge.of(run.transcript)
    assert (known.virtual_rows, known.sums_are_real, known.hidden, known.exact) == (
        *(True, True),
        *(False, True),
    )
    assert known.ratio == 1.0
    assert known.denoisers == run.engine.stack.denoisers != ()
    assert known.constant
    assert known.item_rows
    assert run.transcript.public["algorithm"]["traits"] == {
        "rows": "items",
        "row_sets": "rated",
        "form": "factorized",
    }


@pytest.mark.claim("unstated-is-not-harmless")
@pytest.mark.parametrize(
    ("where", "trait", "attack"),
    [
        ("protection", "uploads", SubsetRegression()),
        ("protection", "virtual_rows", SumDecoding()),
        ("protection", "noise", SubsetRegression()),
        ("protection", "reports", SubsetRegression()),
        ("protection", "denoising", DenoiserExposure()),
        ("algorithm", "row_sets", Intersection()),
        ("algorithm", "row_sets", SumDecoding()),
        ("algorithm", "rows", Intersection()),
        ("algorithm", "form", Lattice()),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_trait_that_is_not_stated_is_not_taken_for_harmless(
    run: RecordedRun, where: str, trait: str, attack: Any
) -> None:
    truth = GroundTruth(recorded=run.truth, train=TABLE)
    assert evaluate(attack, SERVER, run.transcript, truth, seed=1).measured
    silent = evaluate(attack, SERVER, stated(run, where, **{trait: None}), truth, seed=1)
    assert silent.reason == f"the {where} does not state its trait {trait!r}"
    strange = evaluate(attack, SERVER, stated(run, where, **{trait: "odd"}), truth, seed=1)
    assert strange.reason == (f"the {where} states a trait that is not known: {trait} = 'odd'")


@pytest.mark.claim("unstated-is-not-harmless")
def test_an_algorithm_that_sends_half_of_its_rows_is_proven_nothing(run: RecordedRun) -> None:
    half = stated(run, "algorithm", row_sets="some").view(SERVER)
    told = SubsetRegression().run(half)
    assert isinstance(told, NotApplicable)
    assert "some of their rated items" in told.reason
    whole, ranked = Intersection().run(run.transcript.view(SERVER)), Intersection().run(half)
    assert isinstance(whole, Claims)
    assert isinstance(ranked, Claims)
    assert whole.of(RatedSetClaim)[0].predicted is not None
    assert (
        ranked.of(RatedSetClaim)[0].predicted is None
    )  # what is missing once may be rated all the same
    more = stated(run, "algorithm", row_sets="others").view(SERVER)
    for attack in (SubsetRegression(), SumDecoding(), DenoiserExposure()):
        assert isinstance(attack.run(more), NotApplicable)


def test_unknown_denoisers_are_not_guessed() -> None:
    with pytest.raises(UnknownTraitError, match="'denoisers'"):
        _ = Knowledge(stack={}, rows={}).denoisers
    assert Knowledge(stack={}, rows={}).ratio is None


def test_traits_fold_in_the_order_of_the_layers() -> None:
    taken_out = RECORDS["denoisers"].traits
    assert taken_out.over(BARE).virtual_rows == "none"  # there were none
    assert taken_out.over(CLOAK.traits.over(BARE)).virtual_rows == "taken-out"
    assert AS_BEFORE.over(BARE) == BARE
    with pytest.raises(ConfigError, match=r"traits\.uploads = 'veiled'"):
        replace(BARE, uploads="veiled")
    with pytest.raises(TypeError, match="denoising"):
        Traits(virtual_rows=None, reports=None, uploads=None, noise=None)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"traits": None}, "traits"),
        ({"traits": asdict(BARE)}, "traits"),
        ({"role": "veil"}, "role"),
        ({"claim": None}, "claim"),
        ({"settings": int}, "settings"),
    ],
)
def test_a_record_that_leaves_something_out_is_refused(changes: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError, match=f"layer virtual-ratings: {key}"):
        replace(CLOAK, **changes)


def test_stacks_follow_from_roles_and_needs() -> None:
    veil = replace(CLOAK, name="veil", claim=replace(STACKS["virtual-ratings",], system="Veil"))
    table = stacks_of([*RECORDS.values(), veil], STACKS[()])
    assert {stack for stack in table if "veil" in stack} == {("veil",), ("veil", "denoisers")}
    others = {stack: claim for stack, claim in table.items() if "veil" not in stack}
    assert others == dict(STACKS)
    both = table["veil", "denoisers"]
    assert both.system == "Veil; FedRec++ at rho = 0"
    assert not both.lossless  # neither promises it for the other
    with pytest.raises(ConfigError, match="does not stack"):
        stacks_of([replace(veil, published={("veil", "masking"): STACKS[()]})], STACKS[()])


def test_no_layer_is_left_out_of_a_stack_that_it_is_in() -> None:
    """Two that would each make the collector do not stack: one would be named and not be there."""
    own = replace(RECORDS["skellam"], name="own-noise", requires=(), claim=STACKS[()])
    table = stacks_of([*RECORDS.values(), own], STACKS[()])
    assert {stack for stack in table if "own-noise" in stack} == {
        ("own-noise",),
        *((record.name, "own-noise") for record in RECORDS.values() if record.role == "cloak"),
    }
    assert all(len(makers_of(RECORDS[name] for name in stack)) <= 1 for stack in STACKS)
    unbuilt = replace(RECORDS["masking"], name="unbuilt", build=None)  # claims what masking does
    for role in ROLES:
        nowhere = stacks_of([*RECORDS.values(), replace(unbuilt, role=role)], STACKS[()])
        assert set(nowhere) == set(STACKS), role
    assert ("unbuilt", "masking") not in stacks_of(
        [RECORDS["masking"], replace(unbuilt, role="noise", excludes=())], STACKS[()]
    )
    with pytest.raises(ConfigError, match=r"layer own-noise: requires = \('mist',\): is unknown"):
        stacks_of([replace(own, requires=("mist",))], STACKS[()])


@pytest.mark.parametrize("given", [None, {}, LAYERS["clip"](), LAYERS["masking"]])
@pytest.mark.parametrize("name", [stack[0] for stack in STACKS if len(stack) == 1])
def test_a_layer_is_not_built_of_another_ones_settings(name: str, given: Any) -> None:
    sizes = Sizes(n_clients=20, n_items=30, width=3, cohort=20)
    shown = "" if given is None else " = .*"
    with pytest.raises(ConfigError, match=rf"^protection\.{name}{shown}: must be a \w+Config"):
        build_stack({name: given}, sizes=sizes, codec=FixedPoint(), streams=Streams.system())


def test_only_layers_that_hide_any_rows_claim_something_about_other_algorithms() -> None:
    subject = Subject(name="A", uploads="all of it", sums="sums", few="few tell")
    claims = claims_about(subject, STACKS[()])
    assert set(claims) == {(), ("masking",), ("paillier",)}
    assert claims["masking",].hides == "all of it, from the server, which learns sums"
    assert claims["paillier",].system == "A with encrypted uploads (Chai et al. 2021)"
