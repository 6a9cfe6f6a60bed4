"""Attacks on split personalization, piece by piece, where the answer is known exactly."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks.base import InapplicableError
from attacks.families.item_changes import touched
from attacks.families.split.dense_layer import recover_inputs
from attacks.families.split.flat_uploads import Architecture, FlatUploads
from attacks.families.split.touched_rows import row_changes, signed_changes
from attacks.planted.split import plant_split
from secure_fedrec.errors import UnstatedFactError
from secure_fedrec.wire import Adversary, BlockStore, Transcript, View

SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
RING = {"bits": 64, "fraction_bits": 32, "clip": 4096.0}


def view_of(algorithm: dict[str, Any]) -> View:
    public = {"n_clients": 1, "ring": RING, "algorithm": algorithm}
    return Transcript(BlockStore(None), public).view(SERVER)


def parameters(**shapes: tuple[int, ...]) -> dict[str, Any]:
    """Public knowledge of parameters with these names; "__" stands for a dot."""
    federated, start = [], 0
    for name, shape in shapes.items():
        stop = start + int(np.prod(shape))
        dotted = name.replace("__", ".")
        federated.append({"name": dotted, "shape": list(shape), "start": start, "stop": stop})
        start = stop
    private = [{"name": "user.weight", "shape": [1, 3], "start": 0, "stop": 3}]
    return {"federated": federated, "private": private, "weight_position": start}


# --- the quotient of the first layer --------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    units=st.integers(1, 12),
    examples=st.integers(1, 20),
    factor=st.sampled_from([-300.0, -1.0, 1e-3, 1.0, 737.0]),
)
def test_constant_inputs_come_out_of_the_sum(
    seed: int, units: int, examples: int, factor: float
) -> None:
    """dW = sum_e g_e x_e' and db = sum_e g_e: a constant part of x is dW' db / |db|^2, exactly."""
    rng = np.random.default_rng(seed)
    constant, changing = rng.normal(size=3), rng.normal(size=(examples, 2))
    inputs = np.hstack([np.tile(constant, (examples, 1)), changing])
    gradients = rng.normal(size=(examples, units))
    weights, biases = factor * gradients.T @ inputs, factor * gradients.sum(axis=0)
    values, fits = recover_inputs(weights[None], biases[None])
    np.testing.assert_allclose(values[0, :3], constant, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(fits[0, :3], 1.0, rtol=1e-6)
    assert (fits <= 1.0 + 1e-9).all()
    if examples == 1:  # of one example everything is constant
        np.testing.assert_allclose(values[0, 3:], changing[0], rtol=1e-6, atol=1e-9)


def test_changing_inputs_do_not_fit() -> None:
    rng = np.random.default_rng(3)
    gradients, inputs = rng.normal(size=(40, 16)), rng.normal(size=(40, 5))
    _, fits = recover_inputs((gradients.T @ inputs)[None], gradients.sum(axis=0)[None])
    assert fits.max() < 0.9


def test_a_layer_that_did_not_change_says_nothing() -> None:
    values, fits = recover_inputs(np.zeros((2, 4, 3)), np.zeros((2, 4)))
    assert not values.any()
    assert not fits.any()


# --- what is known of a model ---------------------------------------------------------------------


def test_layers_and_tables_are_told_by_name_and_shape() -> None:
    known = parameters(
        item_embedding__weight=(9, 4),
        lstm__weight_ih_l0=(8, 4),
        lstm__bias_ih_l0=(8,),
        norm__weight=(8,),
        norm__bias=(8,),
        hidden__weight=(5, 7),
        hidden__bias=(5,),
        free=(2, 2),
        output__weight=(3, 5),
        output__bias=(3,),
    )
    architecture = Architecture.of(view_of(known))
    assert isinstance(architecture, Architecture)
    layers = architecture.dense_layers()
    assert [layer.weight.name for layer in layers] == ["hidden.weight", "output.weight"]
    assert [layer.bias.name for layer in layers] == ["hidden.bias", "output.bias"]
    assert [table.name for table in architecture.tables()] == ["item_embedding.weight"]
    assert architecture.private == 3
    assert architecture.weight_position == known["weight_position"]


@pytest.mark.parametrize("missing", ["federated", "private", "weight_position"])
def test_what_is_not_stated_of_parameters_is_a_reason(missing: str) -> None:
    known = parameters(hidden__weight=(5, 7), hidden__bias=(5,))
    del known[missing]
    with pytest.raises(UnstatedFactError, match=f"does not state '{missing}'"):
        Architecture.of(view_of(known))


def test_uploads_are_cut_where_the_parameters_lie() -> None:
    """Against the change of a client computed from its own examples, weight included."""
    run, truth = plant_split(payload_rounds=(1,))
    uploads = FlatUploads.read(run.transcript.view(SERVER))
    assert isinstance(uploads, FlatUploads)
    counts = truth.ratings.counts()
    np.testing.assert_array_equal(uploads.clients, np.arange(truth.ratings.n_clients))
    np.testing.assert_array_equal(uploads.weights(), counts)
    named = {each.name: each for each in uploads.architecture.parameters}
    bias = uploads.change(named["output.bias"])
    # Cross-entropy: the bias changes of the classes cancel; the majority's is positive in round 1.
    np.testing.assert_allclose(bias.sum(axis=1), 0.0, atol=1e-8)
    table = uploads.change(named["item_embedding.weight"])
    assert table.shape == (len(counts), truth.ratings.n_items, 6)
    weight = uploads.change(named["hidden.weight"])
    assert weight.shape == (len(counts), 24, 12)
    # The changes make the next table: nothing was cut at a wrong place.
    start, after = (run.transcript.view(SERVER).table(1), run.engine.public.table)
    assert start.shape == after.shape


@pytest.mark.parametrize("change", ["rows", "short"])
def test_uploads_that_are_not_whole_are_a_reason(change: str) -> None:
    run, _ = plant_split(payload_rounds=(1,))
    store, public = run.transcript._store, dict(run.transcript.public)
    if change == "short":
        known = dict(public["algorithm"])
        known["weight_position"] = 10**6
        public["algorithm"] = known
    else:
        copy = BlockStore(None)
        for name in ("model", "upload"):
            for columns in store.read(1, name):
                edited = dict(columns)
                if name == "upload":
                    edited["rows"] = np.roll(columns["rows"], 1)
                copy.append(1, name, edited)
        store = copy
    with pytest.raises(InapplicableError, match="uploads are not whole vectors"):
        FlatUploads.read(Transcript(store, public).view(SERVER))


# --- rows of tables -------------------------------------------------------------------------------


def test_sizes_of_row_changes_by_hand() -> None:
    change = np.array([[[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]]])
    assert row_changes(change).tolist() == [[5.0, 0.0, 2.0]]


def test_touched_rows_are_those_that_changed_or_stand_out() -> None:
    exact = np.array([[0.0, 1e-9, 0.0, 3.0, 2.0, 1.0]])  # more than half touched
    assert touched(exact).tolist() == [[False, True, False, True, True, True]]
    noisy = np.array([[1.0, 1.1, 0.9, 1.05, 9.0, 0.95]])
    assert touched(noisy).tolist() == [[False, False, False, False, True, False]]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), flip=st.booleans())
def test_the_smaller_side_is_that_of_the_positives(seed: int, flip: bool) -> None:
    """Rows of one direction with opposite signs; which way it points does not matter."""
    rng = np.random.default_rng(seed)
    direction = rng.normal(size=4)
    labels = rng.permutation(np.repeat([1.0, -1.0, 0.0], [5, 20, 10]))
    sizes = labels * rng.uniform(0.5, 1.0, 35) * (-1.0 if flip else 1.0)
    scores = signed_changes((sizes[:, None] * direction)[None])[0]
    assert scores[labels > 0].min() > 0
    assert scores[labels < 0].max() < 0
    np.testing.assert_allclose(scores[labels == 0], 0.0, atol=1e-9)
