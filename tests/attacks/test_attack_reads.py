"""What reached an adversary and nobody read: by block, from what attacks fetch through the view."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from attacks import SUITE, evaluate
from attacks.scoring.games import reads
from attacks.view.knowledge import flat_view, item_view
from audits.gates.verdict import unread
from secure_fedrec.wire import Adversary, Step, View
from tests.attacks.configured import SERVER, TAPPING, Recorded, recorded_as

MASKS = {"layer": "masking", "min_survivors": 3, "corrupt": 0.0}
OWN = Adversary(
    name="own",
    corrupt=frozenset(f"client:{number}" for number in range(12)),
    taps=frozenset({"network"}),
)
NCF = {"name": "fedncf", "rank": 4, "hidden": 6, "rounds": 3}
FURL = {"name": "furl", "rounds": 3, "dim": 4, "hidden": [8]}
MIXED = {"name": "perfedrec", "rank": 4, "rounds": 3}
PMF = {"name": "pmf", "rank": 4, "rounds": 3}


@cache
def run(name: str, masked: bool, cohort: int | None) -> Recorded:
    of = {"fedncf": NCF, "furl": FURL, "perfedrec": MIXED, "pmf": PMF}[name]
    layers = [MASKS] if masked else []
    data: dict[str, Any] = {"negatives": 1} if name == "furl" else {"items": 60}
    return recorded_as(of, *layers, cohort=cohort, **data)


CASES = [
    ("fedncf", True, 3, SERVER, ["aggregate of parameters"]),
    ("fedncf", False, 2, OWN, ["public parameters"]),
    ("furl", True, 5, SERVER, ["aggregate"]),  # but for the item table
    ("furl", False, 5, OWN, ["table"]),
    ("perfedrec", False, 6, OWN, ["part"]),
    ("pmf", True, 20, SERVER, []),
    ("pmf", False, 20, TAPPING, []),
    ("pmf", False, None, SERVER, []),
]


def test_nobody_attacks_who_is_not_there() -> None:
    """Denoisers of a federation without any see no table, whatever they tap besides."""
    phantom = Adversary(name="p", corrupt=frozenset({"denoisers"}), taps=frozenset({"network"}))
    for attack in SUITE.values():
        assert not evaluate(attack, phantom, *run("fedncf", False, 2), seed=0).measured


@pytest.mark.claim("verdicts-judge-everything")
@pytest.mark.parametrize(("name", "masked", "cohort", "who", "left"), CASES)
def test_what_no_attack_fetches_is_unread(
    name: str, masked: bool, cohort: int | None, who: Adversary, left: list[str]
) -> None:
    """An attack that claims anything of a recording asks for messages, and is seen to."""
    recorded = run(name, masked, cohort)
    found = [evaluate(attack, who, *recorded, seed=0) for attack in SUITE.values()]
    told = [
        {"adversary": each.adversary, "received": each.received, "read": each.read}
        for each in found
    ]
    assert unread(told) == ({who.name: left} if left else {})
    measured = {each.attack for each in found if each.measured}
    assert measured
    asking = {each for each in SUITE if reads(SUITE[each], who, *recorded)}
    assert measured <= asking < set(SUITE)


def whole_view(name: str, masked: bool, who: Adversary) -> View:
    transcript, _ = run(name, masked, 3 if name == "fedncf" else 5)
    return transcript.view(who)


@pytest.mark.claim("verdicts-judge-everything")
def test_rounds_are_not_reads_and_blocks_are_read_one_by_one() -> None:
    view = whole_view("fedncf", True, SERVER)
    (round_, *_) = view.payload_rounds(Step.AGGREGATE)
    assert view.fetched == set()
    assert "aggregate of parameters" in view.received()
    assert "aggregate of participants" not in view.received()  # a 1 of each client
    items = item_view(view)
    assert items is not None
    items.messages(Step.AGGREGATE, round_, payload=True)
    assert view.fetched == {"aggregate of table", "aggregate counts"}
    view.at(round_).messages(Step.AGGREGATE, round_, payload=True)
    assert {"aggregate of parameters", "aggregate of participants"} < view.fetched


def test_some_values_of_a_block_are_not_the_block() -> None:
    view = whole_view("furl", True, SERVER)
    flat, (round_, *_) = flat_view(view), view.payload_rounds(Step.AGGREGATE)
    assert flat is not None
    words = []
    for part in (flat.of_values(3, 9), flat):
        assert "aggregate" not in view.fetched
        payload = part.messages(Step.AGGREGATE, round_, payload=True).payload
        words.append(np.asarray(getattr(payload, "values")).reshape(-1))  # noqa: B009
    assert "aggregate" in view.fetched
    assert words[0][3:9].tolist() == words[1][3:9].tolist()
    assert not words[0][:3].any()
    assert not words[0][9:].any()


@pytest.mark.claim("verdicts-judge-everything")
def test_a_table_is_read_where_it_moves_to() -> None:
    transcript, _ = run("fedncf", False, 2)
    view = transcript.view(OWN)
    round_ = view.payload_rounds(Step.MODEL)[0]
    view.table(round_)
    view.extras(round_)["parameters"]
    view.extras(round_, after=True)
    assert view.fetched == set()
    view.table(round_, after=True)
    assert view.extras(round_, after=True).get("nothing") is None
    view.extras(round_, after=True)["parameters"]
    assert view.fetched == {"table", "public parameters"}
    assert {"table", "public parameters"} < {*view.received()}
    assert not {"table", "public parameters"} & {*transcript.view(SERVER).received()}


SKELLAM = {"layer": "skellam", "noise_multiplier": 1.0}
CLIP = {"layer": "clip", "norm": 0.05}


@pytest.mark.parametrize("noised", [False, True])
def test_a_table_that_noised_sums_move_asks_for_no_reader(noised: bool) -> None:
    """Its price says what it tells; nobody has read the table here, as no payload was asked for."""
    noise = [CLIP, SKELLAM] if noised else []
    recorded = recorded_as(PMF, *noise, {**MASKS, "min_survivors": 12}, items=60)
    finding = evaluate(SUITE["direct"], OWN, *recorded, seed=0)
    assert "table" in finding.held
    assert ("table" in finding.received) == (not noised)


HIDDEN = {"layer": "paillier"}
TAP = Adversary(name="tap", corrupt=frozenset(), taps=frozenset({"network"}))
DENOISER = Adversary(name="denoiser", corrupt=frozenset({"denoiser:1"}))
HELPED = ({"layer": "virtual-ratings"}, {"layer": "denoisers", "count": 4})


@pytest.mark.claim("verdicts-judge-everything")
@pytest.mark.parametrize(
    ("layers", "who", "held"),
    [
        ([MASKS], SERVER, {"aggregate", "aggregate counts"}),
        (
            [CLIP, SKELLAM, {**MASKS, "min_survivors": 12}],
            SERVER,
            {"aggregate", "aggregate counts"},
        ),
        ([], SERVER, {"upload"}),  # sums of what it reads one by one tell it nothing
        ([], OWN, {"table"}),  # which the sums moved
        ([MASKS], OWN, {"table"}),
        (HELPED, DENOISER, {"noise", "table"}),
        ([HIDDEN], TAP, set()),
    ],
    ids=["masks", "noise", "in clear", "clients", "clients, masks", "denoiser", "tap"],
)
def test_what_tells_of_clients_is_told_by_every_attack(
    layers: Sequence[dict[str, Any]], who: Adversary, held: set[str]
) -> None:
    """By those that do not apply as well."""
    recorded = recorded_as(PMF, *layers, items=60)
    for attack in SUITE.values():
        finding = evaluate(attack, who, *recorded, seed=0)
        assert {*finding.held} == held, attack.name
