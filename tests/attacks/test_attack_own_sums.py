"""Sums and steps less what own clients put in: read in one place; what one other sent is an upload.

Configurations are small ones of those in which own code named clients while an audit passed.
"""

import ast
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attacks.families
from attacks import GroundTruth, evaluate
from attacks.families.hierarchical import LoneRows
from attacks.families.moved_rows import sides
from attacks.planted.controls import planted
from attacks.view.coalition import lone_upload, rows_of, words_of
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.wire import Adversary, OwnUploads, Step, Transcript, View
from secure_fedrec.wire.recording import OWN, rows_in
from tests.attacks.configured import SERVER, Recorded, found, recorded_as

OWN_CLIENTS = frozenset(f"client:{number}" for number in range(12))
TAP = Adversary(name="tap", corrupt=OWN_CLIENTS, taps=frozenset({"network"}))
SERVER_TOO = Adversary(name="server", corrupt=OWN_CLIENTS | {"server"})
FEDNCF = {"name": "fedncf", "rank": 4, "hidden": 8}
FURL = {"name": "furl", "dim": 4, "hidden": [20], "local": {"learning_rate": 1.0, "epochs": 1}}
PAILLIER = {"layer": "paillier", "execution": "simulated", "min_survivors": 3}


def calls(function: ast.AST) -> list[tuple[str, ast.Call]]:
    """Calls inside a function, by the name of what is called."""
    made = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
    return [(ast.unparse(call.func).rsplit(".", 1)[-1], call) for call in made]


@pytest.mark.claim("own-uploads-taken-out")
def test_attacks_get_sums_and_steps_less_what_they_put_in() -> None:
    """No attack asks a view for a sum, for a cohort, or for what followed a round, by itself."""
    wrong = []
    for path in sorted(Path(*attacks.families.__path__).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
            made = calls(function)
            handed = any(name == "public_step" for name, _ in made)
            for name, call in made:
                first = ast.unparse(call.args[0]) if call.args else ""
                literal = first.startswith("Step.") and first != "Step.AGGREGATE"
                after = any(word.arg == "after" for word in call.keywords)
                if (
                    name == "traffic"
                    or (name == "messages" and not literal)
                    or (name in ("table", "extras") and after and not handed)
                ):
                    wrong.append(f"{path.name}:{call.lineno}")
    assert not wrong


@cache
def recorded(name: str) -> Recorded:
    shape: dict[str, Any] = {"items": 60, "mean_ratings": 10.0, "cohort": 2}
    if name == "fedncf":
        return recorded_as({**FEDNCF, "rounds": 20}, **shape)
    if name == "furl":
        return recorded_as({**FURL, "rounds": 20}, negatives=4, **shape)
    if name == "paillier":
        algorithm = {**FEDNCF, "rounds": 12}
        return recorded_as(algorithm, PAILLIER, cohort=3, items=14, mean_ratings=7.0, seed=3)
    return recorded_as({"name": "pmf", "rank": 1, "rounds": 8}, **shape)


@pytest.mark.claim("own-uploads-taken-out")
@pytest.mark.parametrize(
    ("name", "who", "attack", "figure"),
    [
        ("fedncf", TAP, "dense-layer", "reidentified_clients"),
        ("fedncf", TAP, "signed-rows", "precision"),
        ("furl", TAP, "dense-layer", "reidentified_clients"),
        ("furl", TAP, "touched-rows", "exact_clients"),
        ("furl", TAP, "moved-rows", "clients_exposed"),
        ("paillier", SERVER_TOO, "dense-layer", "reidentified_clients"),
        ("pmf", TAP, "moved-rows", "clients_exposed"),
        ("pmf", TAP, "sum-decoding", "clients_exposed"),
    ],
)
def test_what_one_other_client_sent_is_read(
    name: str, who: Adversary, attack: str, figure: str
) -> None:
    figures = found(attack, recorded(name), who).figures
    assert (figures[figure] or 0) > 0
    assert not figures.get("disclosures_wrong")


@pytest.mark.claim("own-uploads-taken-out")
@pytest.mark.parametrize("who", [TAP, SERVER_TOO], ids=lambda who: who.name)
@pytest.mark.parametrize("name", ["fedncf", "furl", "paillier"])
def test_what_is_left_is_what_that_client_sent_and_nobody_is_made_up(
    name: str, who: Adversary
) -> None:
    """Word for word, but for the scale where own clients are not in the mean that tells it."""
    transcript, truth = recorded(name)
    clients = truth.corrupted_clients(who)
    whole, there = transcript.view(who, own=OwnUploads(truth.recorded, clients)), 0
    parts = [whole.of_block(kind) for kind in ("items", "flat")]
    for part in [part for part in parts if part is not None]:
        for round_ in whole.rounds(Step.MODEL):
            left = lone_upload(part, round_)
            if left is None:
                continue
            others, sent = _sent(transcript, truth, part, round_, clients)
            assert left.senders.ids.tolist() == others
            _, block = rows_of(left)
            told = np.zeros_like(sent)
            told[block.rows] = part.codec.decode(words_of(block))
            scale = float((told * sent).sum() / (told**2).sum())
            assert np.allclose(told * scale, sent, atol=1e-6)
            there += 1
    # In the clear the server reads uploads themselves.
    assert (there > 0) == (who is TAP or name == "paillier")


def _sent(
    transcript: Transcript, truth: GroundTruth, part: View, round_: int, clients: frozenset[int]
) -> tuple[list[int], FloatArray]:
    """Which others sent something in a round, and the sum of it, of the rows of a block."""
    columns = truth.recorded.columns(round_, OWN)
    if columns is None:
        messages = transcript.view(SERVER).messages(Step.UPLOAD, round_, payload=True)
        senders, block = messages.senders.ids, rows_of(messages)[1]
    else:
        senders, block = columns["senders"], rows_in(columns)
    assert part.block is not None
    block, other = part.block.rows_of(block), ~np.isin(senders, sorted(clients))
    sent = np.zeros((part.block.rows, part.block.width))
    kept = np.repeat(other, block.lengths)
    np.add.at(sent, block.rows[kept], part.codec.decode(words_of(block)[kept]))
    return senders[other].tolist(), sent


@pytest.mark.parametrize("seed", range(12))
def test_federations_of_odd_shapes_are_never_wrong(seed: int) -> None:
    """Few come, own clients among them: what is certain of the others is right."""
    rng = np.random.default_rng(seed)
    algorithm: dict[str, Any] = [
        {"name": "pmf", "rank": int(rng.integers(1, 5)), "biases": bool(rng.integers(2))},
        {**FEDNCF, "hidden": int(rng.integers(1, 6))},
        {**FURL, "hidden": [int(rng.integers(1, 6))]},
    ][seed % 3]
    shape: dict[str, Any] = {"clients": int(rng.integers(14, 40)), "items": 60}
    shape["cohort"], ring = int(rng.integers(1, 5)), {"fraction_bits": int(rng.choice([8, 32]))}
    made = recorded_as({**algorithm, "rounds": 8}, seed=seed, ring=ring, **shape)
    for attack in ("moved-rows", "sum-decoding"):
        assert not found(attack, made, TAP).figures.get("disclosures_wrong")


@pytest.mark.claim("own-uploads-taken-out")
def test_rows_of_one_organisation_beside_own_ones_are_read() -> None:
    run, truth = planted("lone organisations")
    alone = Adversary(name="server", corrupt=frozenset({"server"}))
    more = Adversary(name="server", corrupt=frozenset({"server", "client:0", "client:1"}))
    rows = [
        evaluate(LoneRows(), who, run.transcript, truth, seed=0).details["rows"]
        for who in (alone, more)
    ]
    finding = evaluate(LoneRows(), more, run.transcript, truth, seed=0)
    assert rows[0] and rows[1] and rows[1] != rows[0]
    assert (finding.figures["lone_clients"] or 0) >= 20


def test_lines_beyond_those_that_are_gone_through_are_not_passed_over() -> None:
    """Rows of one client in a wider network are not read: so nothing is said of them."""
    wide = {**FURL, "hidden": [24], "rounds": 8}
    made = recorded_as(wide, cohort=2, negatives=4, items=60)
    finding = found("moved-rows", made, TAP)
    assert not finding.measured
    assert "more lines than the search tries" in (finding.reason or "")
    view = made[0].view(TAP)
    assert sides(view, 1, np.ones((1, 4)), 20.0) is None
    assert not found("moved-rows", made, TAP).read


@pytest.mark.claim("langevin-tolerance")
@pytest.mark.parametrize(("temperature", "told"), [(1e-24, True), (1e-16, None), (1e-2, False)])
def test_noise_of_public_size_is_a_tolerance(temperature: float, told: bool | None) -> None:
    algorithm = {"name": "pmf", "rank": 4, "rounds": 3, "temperature": temperature}
    shape: dict[str, Any] = {"clients": 60, "items": 120, "mean_ratings": 20.0}
    made = recorded_as(algorithm, {"layer": "masking"}, cohort=20, **shape)
    finding = found("sum-decoding", made)
    assert not finding.figures["disclosures_wrong"]
    if told is not None:
        assert ((finding.figures["clients_exposed"] or 0) > 0) == told
        assert ("drowns" in finding.details["unsolved"]) != told


@pytest.mark.claim("langevin-tolerance")
@pytest.mark.parametrize("seed", range(12))
def test_noise_of_any_size_makes_nothing_false(seed: int) -> None:
    rng = np.random.default_rng(seed)
    algorithm = {"name": "pmf", "rank": int(rng.integers(1, 9)), "rounds": 3}
    algorithm["temperature"] = 10.0 ** -float(rng.uniform(2, 26))
    shape: dict[str, Any] = {"clients": 40, "items": 80, "mean_ratings": 8.0}
    made = recorded_as(algorithm, {"layer": "masking"}, cohort=15, seed=seed, **shape)
    for who in (Adversary(name="server", corrupt=frozenset({"server"})), TAP):
        assert not found("sum-decoding", made, who).figures.get("disclosures_wrong")


def test_one_virtual_row_tells_the_direction_of_a_vector() -> None:
    """Of a catalogue that clients have rated nearly all of, a message holds a row or two."""
    layers = ({"layer": "virtual-ratings", "rho": 1}, {"layer": "denoisers", "count": 5})
    shape: dict[str, Any] = {"clients": 60, "items": 8, "mean_ratings": 7.0}
    made = recorded_as({"name": "pmf", "rank": 4, "rounds": 3}, *layers, **shape)
    who = Adversary(name="denoiser", corrupt=frozenset({"denoiser:0"}))
    figures = found("virtual-row-vectors", made, who).figures
    assert (figures["clients_exposed"] or 0) > 0
    assert figures["disclosures_wrong"] == 0
