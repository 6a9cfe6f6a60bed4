"""Protected averages of a loop in one process: exact under masks, with a price under noise."""

import copy
import difflib
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from secure_fedrec.accounting import claim
from secure_fedrec.engines.loop import Protection, protect
from secure_fedrec.errors import (
    ConfigError,
    EncodingError,
    FedRecError,
    MisfitError,
    ProtocolError,
    RefusalError,
)
from secure_fedrec.protection.masking import Kind
from secure_fedrec.protection.means import MaskedMean, NoisedMean

EXAMPLES = Path(__file__).parents[2] / "examples" / "protected_torch"
CLIENTS, CLIP, DIGITS = 4, 2.0, 24


def model(**changed: Any) -> dict[str, Any]:
    """A model of NumPy arrays, with some in the place of others."""
    found: dict[str, Any] = {
        "bn.num_batches_tracked": np.array(7),
        "bn.running_mean": np.ones(2, dtype=np.float32),
        "weight": np.arange(6, dtype=np.float64).reshape(2, 3) / 8,
        "bias": np.zeros(3, dtype=np.float32),
    }
    return {**found, **{name.replace("__", "."): each for name, each in changed.items()}}


def trained(by: float) -> dict[str, Any]:
    """The model after training that moved all its floats, and counted."""
    return {
        name: array + np.asarray(by, dtype=array.dtype) if array.dtype.kind == "f" else array + 1
        for name, array in model().items()
    }


def masks(**changed: Any) -> Protection:
    told = {"clients": CLIENTS, "clip": CLIP, "max_weight": 9, "dropout": 0.25, **changed}
    return protect(model(), **told)


def noise(**changed: Any) -> Protection:
    told = {"clients": CLIENTS, "clip": 0.5, "rounds": 2, "epsilon": 6.0, "delta": 1e-5, **changed}
    return protect(model(), **told)


MOVES = hnp.arrays(np.float64, 3, elements=st.floats(-CLIP, CLIP))
ONE_CLIENT = st.tuples(MOVES, st.integers(1, 9))


@settings(max_examples=12, deadline=None)
@given(start=MOVES, moves=st.lists(ONE_CLIENT, min_size=4, max_size=4), gone=st.integers(0, 4))
def test_the_mean_is_the_plain_one_of_fixed_point_numbers(
    start: Any, moves: list[tuple[Any, int]], gone: int
) -> None:
    """Bit for bit, of whoever is left, by integers and one quotient that is rounded once."""
    begun, scale = {"vector": start}, 2**DIGITS
    afters = [start + moved for moved, _ in moves]
    protection = protect(begun, clients=4, clip=2 * CLIP, max_weight=9, dropout=0.25)
    handed = {c: ({"vector": afters[c]}, moves[c][1]) for c in range(4)}
    drops = {gone: Kind.UPLOAD} if gone < 4 else {}
    found = protection.mean(handed, start=begun, drops=drops)
    stayed = [client for client in range(4) if client != gone]
    weight = sum(moves[c][1] for c in stayed)
    sums = [
        sum(moves[c][1] * int(np.rint((afters[c][at] - start[at]) * scale)) for c in stayed)
        for at in range(3)
    ]
    plain = start + np.array([float(Fraction(each, weight * scale)) for each in sums])
    np.testing.assert_array_equal(found.model["vector"], plain)
    assert found.weight == weight
    assert found.clients.tolist() == stayed
    assert list(found.missing) == [gone] * (gone < 4)


def test_what_is_not_shared_is_the_servers_own() -> None:
    begun = model()
    handed = {client: (trained(0.25 * client), client + 1) for client in range(CLIENTS)}
    found = masks().mean(handed, start=begun)
    moved = 0.25 * (1 * 2 + 2 * 3 + 3 * 4) / 10
    np.testing.assert_array_equal(found.model["weight"], begun["weight"] + moved)
    np.testing.assert_array_equal(found.model["bias"], np.full(3, np.float32(moved)))
    assert found.model["bias"].dtype == np.float32
    assert list(found.model) == list(begun)
    for name in ("bn.num_batches_tracked", "bn.running_mean"):
        assert found.model[name] is begun[name]
    assert not found.missing


def test_patterns_choose_what_is_shared() -> None:
    protection = masks(shared=("*", "*.running_mean"), private=("bias",))
    assert list(protection.shared.shapes) == ["bn.running_mean", "weight"]
    with pytest.raises(ConfigError, match="'wieght' matches no array"):
        masks(private=("wieght",))


def test_tensors_come_back_as_they_were() -> None:
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).double()
    start = {name: value.clone() for name, value in net.state_dict().items()}
    after = {n: v + 0.5 if v.dtype.is_floating_point else v + 1 for n, v in start.items()}
    protection = protect(net.state_dict(), clients=3, clip=1.0)
    found = protection.mean(dict.fromkeys(range(3), after), start=start).model
    net.load_state_dict(found)
    for name, value in found.items():
        assert value.dtype == start[name].dtype
        moved = 0.5 if name in protection.shared.shapes else 0
        torch.testing.assert_close(value, start[name] + moved, rtol=0, atol=2.0**-25)
    half = {"w": torch.zeros(2, dtype=torch.bfloat16)}
    with pytest.raises(MisfitError, match=r"'w' holds torch.bfloat16.*\.float\(\)"):
        protect(half, clients=3, clip=1.0)


def test_who_is_missing_is_said(caplog: pytest.LogCaptureFixture) -> None:
    """In the result and in the log: handed in nothing, weight 0, fell silent, chosen and gone."""
    protection = masks(clients=15, dropout=0.35)
    handed = {client: (trained(0.5), int(client != 3)) for client in range(13)}
    drops = {0: Kind.UPLOAD, 1: Kind.SHARES, 14: Kind.ADVERTISE}
    found = protection.mean(handed, start=model(), drops=drops)
    assert list(found.missing) == [0, 1, 3, 13, 14]
    assert found.clients.tolist() == [2, *range(4, 13)]
    assert found.missing[0] == found.missing[1] == "fell silent in the middle of the round"
    assert found.missing[3] == "has weight 0"
    assert found.missing[13] == found.missing[14] == "handed in nothing"
    assert "round 1 is without client 0: fell silent" in caplog.text
    np.testing.assert_array_equal(found.model["bias"], np.full(3, 0.5, dtype=np.float32))


def test_too_few_clients_have_no_mean() -> None:
    for handed in ({}, {0: trained(0.5)}, {0: trained(0.5), 1: trained(0.5)}):
        with pytest.raises(ProtocolError, match="a sum needs 3"):
            masks().mean(handed, start=model())


def test_a_model_is_answered_for_once() -> None:
    """Two means over one model, of cohorts that differ by a client, would be that client's."""
    protection = masks()
    handed = {client: trained(0.5) for client in range(CLIENTS)}
    found = protection.mean(handed, start=model())
    with pytest.raises(ProtocolError, match="answered for this public state already"):
        protection.mean(handed, start=model())
    protection.mean(dict.fromkeys(handed, found.model), start=found.model)


@pytest.mark.parametrize(
    ("state", "refusal"),
    [
        (model(bias=np.array([0.0, np.nan, 0.0])), "'bias' moved beyond its clip of 2, or is not"),
        (model(bias=np.array([0.0, np.inf, 0.0])), "'bias' moved beyond its clip of 2, or is not"),
        (model(bias=np.array([0.0, 2.1, 0.0])), "'bias' moved beyond its clip of 2"),
        (model(bias=np.zeros(2)), r"'bias' has not the model's shape, \(3,\)"),
        (model(bias=np.zeros((1, 3))), r"'bias' has not the model's shape, \(3,\)"),
        (model(bias=np.zeros(3, dtype=np.int64)), "'bias' holds int64: whole numbers"),
        (model(bias=np.ma.masked_array(np.zeros(3), mask=[False, True, False])), "MaskedArray"),
        ({n: a for n, a in model().items() if n != "bias"}, "'bias' is shared, and is missing"),
        (model(head=np.zeros(2)), "arrays that the model does not have"),
        ((model(), 10), "weight is above protection.max_weight"),
        ((model(), -1), "weight of -1 is below 0"),
        ((model(), 2.0), "a weight is a whole number, not float"),
        ((model(), True), "a weight is a whole number, not bool"),
        ([model()], "neither a state_dict nor a pair"),
        ((model(), 1, 2), "neither a state_dict nor a pair"),
    ],
)
def test_what_does_not_fit_is_refused_by_client(state: Any, refusal: str) -> None:
    """Before anything is masked, so the round can be run again without it."""
    protection = masks()
    handed: dict[int, Any] = {client: trained(0.5) for client in range(CLIENTS)}
    with pytest.raises(EncodingError, match=f"client 2: .*{refusal}"):
        protection.mean({**handed, 2: state}, start=model())
    assert protection.rounds == 0
    del handed[2]
    assert list(protection.mean(handed, start=model()).missing) == [2]


@pytest.mark.parametrize("start", [model(bias=np.zeros(2)), model(head=np.zeros(2))])
def test_another_model_is_refused(start: dict[str, Any]) -> None:
    with pytest.raises(MisfitError, match="start differs from the model"):
        masks().mean({}, start=start)
    with pytest.raises(EncodingError, match="not finite"):
        masks().mean({}, start=model(bias=np.full(3, np.nan)))


def test_unknown_clients_are_refused() -> None:
    for named in ({"updates": {7: model()}}, {"updates": {}, "drops": {7: Kind.UPLOAD}}):
        with pytest.raises(
            ConfigError, match=r"updates\.client = 7: is not one of this federation"
        ):
            masks().mean(start=model(), **named)
    with pytest.raises(ConfigError, match=r"updates\.client = 'a'"):
        masks().mean({"a": model()}, start=model())  # type: ignore[dict-item]


def test_a_loop_that_samples_clients_settles_how_many() -> None:
    with pytest.raises(ConfigError, match=r"protection.adversary = 'active'.*curious"):
        masks(clients=20, cohort=4)
    protection = masks(clients=20, cohort=4, adversary="curious")
    assert protection.terms.min_survivors == 3
    chosen = {client: trained(0.5) for client in (3, 8, 15)}
    with pytest.raises(ConfigError, match=r"updates.clients = 3: a round is of 4 clients"):
        protection.mean(chosen, start=model())
    found = protection.mean(chosen, start=model(), drops={19: Kind.ADVERTISE})
    assert found.clients.tolist() == [3, 8, 15]
    assert found.missing == {19: "handed in nothing"}


def test_noise_has_the_price_that_was_asked_for() -> None:
    protection = noise()
    assert isinstance(protection.terms, NoisedMean)
    events = protection.terms.events(clients=CLIENTS, length=9)
    whole = claim(events, adversary="server", delta=1e-5)
    assert protection.budget == whole
    assert 5.9 < whole.epsilon <= 6.0
    begun, prices = model(), [protection.price]
    for _ in range(2):
        begun = protection.mean(dict.fromkeys(range(CLIENTS), begun), start=begun).model
        prices.append(protection.price)
    none, first, last = prices
    assert none is None
    assert first is not None
    assert (first.rounds, first.delta) == (1, 1e-5)
    assert 0 < first.epsilon < whole.epsilon
    assert last == whole
    with pytest.raises(RefusalError, match="budget is spent: 2 noised rounds"):
        protection.mean({}, start=begun)


def test_a_round_that_is_given_up_is_paid_for() -> None:
    """Its noised vectors may have been sent."""
    protection = noise(dropout=0.25)
    handed = {client: trained(0.1) for client in range(CLIENTS)}
    with pytest.raises(ProtocolError):
        protection.mean(handed, start=model(), drops=dict.fromkeys((0, 1), Kind.UPLOAD))
    assert protection.price is not None
    assert protection.price.rounds == 1


def test_under_noise_updates_are_shortened_and_noised() -> None:
    """One long update is cut to the clip, and the mean is off by noise of the size that is told."""
    protection = noise(epsilon=60.0, rounds=1)
    assert isinstance(protection.terms, NoisedMean)
    handed = {client: trained(100.0) for client in range(CLIENTS)}
    found = protection.mean(handed, start=model())
    deviation = protection.terms.deviation(clients=CLIENTS, length=9, survivors=CLIENTS)
    off = found.model["weight"] - model()["weight"] - 0.5 / 3
    assert 0 < np.abs(off).max() < 6 * deviation
    assert found.weight == CLIENTS


def test_noise_takes_no_weights() -> None:
    handed = {client: (trained(0.1), client + 1) for client in range(CLIENTS)}
    with pytest.raises(ConfigError, match=r"updates.weight = 2: .*all clients count alike"):
        noise().mean(handed, start=model())
    ones = {client: (state, 1) for client, (state, _) in handed.items()}
    assert noise().mean(ones, start=model()).weight == CLIENTS
    with pytest.raises(EncodingError, match="client 0: "):
        noise().mean({0: model(bias=np.full(3, np.nan))}, start=model())


@pytest.mark.parametrize(
    ("told", "key"),
    [
        ({"epsilon": 8.0, "delta": 1e-5}, "protection.rounds"),
        ({"epsilon": 8.0, "rounds": 3}, "protection.delta"),
        ({"rounds": 3}, "protection.rounds"),
        ({"delta": 1e-5}, "protection.delta"),
        ({"epsilon": 8.0, "delta": 1e-5, "rounds": 3, "max_weight": 9}, "protection.max_weight"),
        ({"epsilon": 8.0, "delta": 1e-5, "rounds": 3, "clip": {"*": 1.0}}, "protection.clip"),
        ({"epsilon": 0.0, "delta": 1e-5, "rounds": 3}, "protection.epsilon"),
        ({"epsilon": 8.0, "delta": 0.0, "rounds": 3}, "protection.delta"),
        ({"noise_multiplier": 1.0}, "protection.noise_multiplier"),
        ({"clips": 1.0}, "protection.clips"),
        ({"clip": float("nan")}, "protection.clip"),
        ({"cohort": 5}, "protection.cohort"),
        ({"clients": (1, 1, 2)}, "federation.clients"),
        ({"clients": {"ann": 1, "bob": 2, "eve": 3}}, "protection.clients"),
        ({"clip": 2.0**40, "max_weight": 2**20}, "protection.clip"),
        ({"clients": 2.0}, "protection.clients"),
        ({"clients": None}, "protection.clients"),
        ({"clients": "0123"}, "protection.clients"),
        ({"clients": (0, 1, "2")}, "protection.clients"),
        ({"cohort": 2.0}, "protection.cohort"),
        ({"cohort": "all"}, "protection.cohort"),
        ({"clip": "1"}, "protection.clip"),
        ({"dropout": "few"}, "protection.dropout"),
        ({"epsilon": 1.0, "rounds": 2, "delta": "x"}, "protection.delta"),
        ({"epsilon": 1.0, "rounds": 2, "delta": True}, "protection.delta"),
        ({"epsilon": 1.0, "rounds": 2, "delta": float("nan")}, "protection.delta"),
        ({"epsilon": "x", "rounds": 2, "delta": 1e-5}, "protection.epsilon"),
        ({"epsilon": float("nan"), "rounds": 2, "delta": 1e-5}, "protection.epsilon"),
        ({"epsilon": 1.0, "rounds": "x", "delta": 1e-5}, "protection.rounds"),
        ({"epsilon": 1.0, "rounds": 2.0, "delta": 1e-5}, "protection.rounds"),
    ],
)
def test_settings_that_cannot_be_are_refused(told: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        protect(model(), **{"clients": CLIENTS, "clip": CLIP, **told})
    assert refused.value.key == key


@pytest.mark.parametrize("delta", ["x", 0.0, 1, True, float("nan")])
def test_a_delta_that_is_none_is_refused_by_name(delta: Any) -> None:
    terms = noise().terms
    with pytest.raises(ConfigError, match=r"protection\.delta"):
        Protection(model(), terms, clients=range(CLIENTS), delta=delta)


def reduced(thing: Any) -> Any:
    """What pickles ask of an object."""
    return thing.__reduce_ex__(4)


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, reduced])
def test_a_budget_is_not_copied(again: Callable[[Any], Any]) -> None:
    """Each copy would spend it again, on the same clients."""
    for protection in (noise(), masks()):
        with pytest.raises(TypeError, match="must not be copied or pickled"):
            again(protection)


@pytest.mark.parametrize(
    "told",
    [
        {"drops": {0: "upload"}},
        {"drops": {0: None}},
        {"drops": {0: 2.5}},
        {"drops": [0]},
        {"drops": {"0": Kind.UPLOAD}},
        {"updates": [trained(0.1)]},
        {"updates": {"0": trained(0.1)}},
        {"updates": {0: 3}},
        {"updates": {0: (trained(0.1), "one")}},
        {"start": 3},
    ],
)
def test_what_no_round_can_be_made_of_costs_no_round(told: dict[str, Any]) -> None:
    protection = noise(rounds=1)
    handed = {client: trained(0.1) for client in range(CLIENTS)}
    usual: dict[str, Any] = {"updates": handed, "start": model(), **told}
    with pytest.raises(FedRecError):
        protection.mean(usual.pop("updates"), **usual)
    assert protection.rounds == 0
    assert protection.mean(handed, start=model()).round == 1


def test_terms_of_a_deployment_are_taken_as_they_are() -> None:
    terms = MaskedMean(clip=CLIP, max_weight=3)
    found = Protection(model(), terms, clients=range(5))
    assert found.terms is terms
    assert found.budget is None
    with pytest.raises(ConfigError, match=r"protection\.delta"):
        Protection(model(), terms, clients=range(5), delta=1e-5)
    with pytest.raises(FedRecError):
        Protection(model(), terms, clients=range(1))


def test_the_examples_differ_by_ten_lines_and_train(capsys: pytest.CaptureFixture[str]) -> None:
    """Under masks it prints what the plain loop prints; under noise it ends with a price."""
    pytest.importorskip("torch")
    said, texts = {}, {}
    for name in ("plain", "protected", "noised"):
        path = EXAMPLES / f"{name}.py"
        run_path(str(path))
        said[name], texts[name] = capsys.readouterr().out, path.read_text().splitlines()
    assert said["plain"] == said["protected"]
    assert said["plain"].count("\n") == 5
    price = re.search(r"epsilon_server = ([\d.]+) at delta = 1e-05 over 5 rounds", said["noised"])
    assert price is not None
    assert float(price[1]) <= 8.0
    for name in ("protected", "noised"):
        lines = difflib.ndiff(texts["plain"], texts[name])
        assert sum(bool(re.match(r"[+-] .*\w", line)) for line in lines) <= 10
