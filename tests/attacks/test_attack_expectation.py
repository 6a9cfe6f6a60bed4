"""What a trained model expects of a client, and how that is told from its upload."""

from typing import Any

import numpy as np
import pytest

from attacks import Finding, evaluate
from attacks.families.split.flat_uploads import Architecture, FlatUploads, Parameter
from attacks.families.split.output_bias import MAJORITY, expected_shares, label_shares, largest_step
from attacks.planted.split import PlantedSplit, plant_split
from attacks.suite import attack_named
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.wire import Adversary

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
CODEC = FixedPoint(bits=64, fraction_bits=40, clip=2.0**10)
SGD: dict[str, Any] = {"optimizer": "sgd", "learning_rate": 0.5, "epochs": 2, "batch_size": None}
RNG = np.random.default_rng(0)


def laid_out(shapes: dict[str, tuple[int, ...]]) -> Architecture:
    ends = np.concatenate([[0], np.cumsum([np.prod(shape) for shape in shapes.values()])]).tolist()
    places = zip(shapes.items(), ends[:-1], ends[1:], strict=True)
    return Architecture(
        parameters=tuple(
            Parameter(name=name, shape=shape, start=start, stop=stop)
            for (name, shape), start, stop in places
        ),
        private=2,
        weight_position=ends[-1],
    )


def uploads_of(architecture: Architecture, changes: list[dict[str, FloatArray]]) -> FlatUploads:
    flats = []
    for change in changes:
        flat = np.zeros(architecture.values)
        for each in architecture.parameters:
            if each.name in change:
                flat[each.start : each.stop] = change[each.name].reshape(-1)
        flats.append(flat)
    return FlatUploads(
        round=1,
        clients=np.arange(len(changes)),
        words=CODEC.encode(np.stack(flats)),
        plain=np.ones(len(changes), dtype=bool),
        codec=CODEC,
        architecture=architecture,
    )


def softmax(scores: FloatArray) -> FloatArray:
    odds = np.exp(scores - scores.max())
    return np.asarray(odds / odds.sum())


def test_the_layers_are_run_on_the_inputs_that_the_upload_gives_away() -> None:
    shapes: dict[str, tuple[int, ...]] = {
        "other.weight": (7, 5),  # not of the chain: nobody reads seven values
        "other.bias": (7,),
        "one.weight": (6, 3),
        "one.bias": (6,),
        "two.weight": (5, 6),
        "two.bias": (5,),
        "out.weight": (4, 5),
        "out.bias": (4,),
    }
    architecture = laid_out(shapes)
    table = RNG.normal(size=(17, 8))  # rows of a table that holds them all, and more
    inputs, slopes = RNG.normal(size=(3, 3)), RNG.normal(size=(3, 6))
    changes = [
        {"one.weight": np.outer(slope, x), "one.bias": slope}
        for x, slope in zip(inputs, slopes, strict=True)
    ]
    found = expected_shares(uploads_of(architecture, changes), table)
    flat = table.reshape(-1)
    one, one_bias, two, two_bias, out, out_bias = (
        flat[each.start : each.stop].reshape(each.shape) for each in architecture.parameters[2:]
    )
    for row, x in zip(found, inputs, strict=True):
        hidden = np.maximum(two @ np.maximum(one @ x + one_bias, 0) + two_bias, 0)
        np.testing.assert_allclose(row, softmax(out @ hidden + out_bias), rtol=1e-6)


def test_an_output_layer_alone_is_a_chain() -> None:
    architecture = laid_out({"out.weight": (4, 3), "out.bias": (4,)})
    table, x, slope = RNG.normal(size=(4, 4)), RNG.normal(size=3), RNG.normal(size=4)
    uploads = uploads_of(architecture, [{"out.weight": np.outer(slope, x), "out.bias": slope}])
    weight, bias = table.reshape(-1)[:12].reshape(4, 3), table.reshape(-1)[12:]
    np.testing.assert_allclose(
        expected_shares(uploads, table)[0], softmax(weight @ x + bias), rtol=1e-6
    )


@pytest.mark.parametrize(
    ("settings", "step"),
    [
        ({}, 1.0),
        ({"batch_size": 4}, 3.0),  # three batches of ten examples
        ({"optimizer": "momentum", "momentum": 0.9}, 10.0),
    ],
)
def test_the_longest_step(settings: dict[str, Any], step: float) -> None:
    found = largest_step({**SGD, **settings}, np.array([10.0]))
    assert found is not None
    np.testing.assert_allclose(found, [step])


@pytest.mark.parametrize("local", [{}, {**SGD, "optimizer": "adam"}])
def test_a_step_of_unknown_length(local: dict[str, Any]) -> None:
    assert largest_step(local, np.array([10.0])) is None


def test_shares_are_what_was_expected_and_what_surprised() -> None:
    expected = np.array([[1.0, 0.0, 0.0], [0.0, 0.3, 0.7], [0.2, 0.3, 0.5]])
    truth = np.array([[0.0, 0.4, 0.6], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    # The first two are all surprise: both bounds are the step itself. Nothing surprised the last.
    steps = np.array([0.25, 0.01, 0.1])
    found = label_shares(steps[:, None] * (truth - expected), expected, steps)
    np.testing.assert_allclose(found, truth, atol=1e-12)
    np.testing.assert_array_equal(found[2], expected[2])


def test_changes_too_long_for_any_step_stay_finite() -> None:
    """Words that hide an upload decode to anything."""
    changes = RNG.normal(size=(5, 4)) * 1e300
    found = label_shares(changes, np.full((5, 4), 0.25), np.full(5, 0.1))
    assert np.isfinite(found).all()
    np.testing.assert_array_equal(found.argmax(axis=1), changes.argmax(axis=1))


def labels_at(round_: int) -> tuple[Finding, float]:
    """The attack on an upload of that round, and how often the change alone names the majority."""
    run, truth = plant_split(rounds=round_, payload_rounds=(round_,))
    finding = evaluate(attack_named("output-bias"), SERVER, run.transcript, truth, seed=0)
    uploads = FlatUploads.read(run.transcript.view(SERVER))
    assert isinstance(uploads, FlatUploads)
    change = uploads.change(uploads.architecture.dense_layers()[-1].bias)
    return finding, float(np.mean(change.argmax(axis=1) == truth.secrets[f"labels.{MAJORITY}"]))


def test_labels_that_a_trained_model_foresees_are_read_all_the_same() -> None:
    finding, change_alone = labels_at(30)
    accuracy = finding.figures["label_accuracy"]
    assert accuracy is not None
    assert accuracy > 0.95
    assert change_alone < 0.5
    assert finding.details["expectation"]
    assert finding.figures["set_precision"] == pytest.approx(1.0, abs=0.01)
    recall = finding.figures["set_recall"]
    assert recall is not None
    assert recall > 0.9


def test_where_the_step_is_unknown_the_change_alone_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = PlantedSplit.public_knowledge
    monkeypatch.setattr(PlantedSplit, "public_knowledge", lambda self: {**whole(self), "local": {}})
    finding, change_alone = labels_at(30)
    assert not finding.details["expectation"]
    assert finding.figures["label_accuracy"] == pytest.approx(change_alone)
