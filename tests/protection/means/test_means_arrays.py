"""Which arrays of a model are in a mean: patterns, defaults, and what is refused by name."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, EncodingError
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.means import MaskedMean, NoisedMean, SharedArrays, Update, trained
from tests.statements import about

MODEL: Mapping[str, np.ndarray] = {
    "body.0.weight": np.zeros((2, 3), np.float32),
    "body.1.weight": np.ones(2, np.float32),
    "body.1.running_mean": np.zeros(2, np.float32),
    "body.1.running_var": np.ones(2, np.float32),
    "body.1.num_batches_tracked": np.array(7),
    "head.weight": np.zeros((4, 2), np.float16),
    "seen": np.zeros(3, np.bool_),
}
FLOATS = ["body.0.weight", "body.1.weight", "head.weight"]
STATISTICS = ["body.1.running_mean", "body.1.running_var"]


def terms(kind: type = MaskedMean, **options: Any) -> Any:
    own = {"max_weight": 10} if kind is MaskedMean else {"noise_multiplier": 0.001, "rounds": 5}
    return kind(**{"clip": 4.0, "corrupt": 0.0, "dropout": 0.0, **own, **options})


def selected(**options: Any) -> list[str]:
    return list(terms(**options).select(MODEL).shapes)


@pytest.mark.claim("means-shared-arrays")
@pytest.mark.parametrize("kind", [MaskedMean, NoisedMean])
def test_by_default_floats_are_shared_but_for_statistics(kind: type) -> None:
    found = terms(kind).select(MODEL)
    assert list(found.shapes) == FLOATS
    assert list(found.home) == sorted(set(MODEL) - set(FLOATS))
    assert found.length == 6 + 2 + 8


@pytest.mark.parametrize(
    ("options", "due"),
    [
        ({"shared": ("body.*",)}, FLOATS[:2]),  # statistics and counters are not meant by that
        ({"private": ("body.1.*",)}, [FLOATS[0], FLOATS[2]]),  # FedBN
        ({"private": ("head.*", "seen")}, FLOATS[:2]),  # FedPer
        ({"shared": ("*", "*.running_mean", "*.running_var")}, sorted(FLOATS + STATISTICS)),
        ({"shared": ("*.running_*",), "private": ("*.weight",)}, None),
        ({"shared": ("body.1.running_mean",)}, STATISTICS[:1]),
        ({"shared": ("*running_var",)}, STATISTICS[1:]),
        ({"shared": ("[bh]*.weight",)}, FLOATS),
    ],
)
def test_patterns_say_what_is_shared(options: dict[str, Any], due: list[str] | None) -> None:
    if due is None:
        with pytest.raises(ConfigError, match="leaves no array to share") as refused:
            selected(**options)
        assert all(f"{name} ({each.dtype})" in str(refused.value) for name, each in MODEL.items())
    else:
        assert selected(**options) == due


@pytest.mark.claim("means-shared-arrays")
@pytest.mark.parametrize(
    ("options", "key", "pattern"),
    [
        ({"shared": ("boddy.*", "*")}, "shared", "boddy.*"),
        ({"private": ("*.wieght",)}, "private", "*.wieght"),
        ({"shared": ("Body.*",)}, "shared", "Body.*"),
        ({"clip": {"*": 1.0, "heads.*": 2.0}}, "clip", "heads.*"),
    ],
)
def test_a_pattern_without_an_array_is_refused(
    options: dict[str, Any], key: str, pattern: str
) -> None:
    with pytest.raises(ConfigError, match="matches no array; there are: ") as refused:
        selected(**options)
    assert str(refused.value).startswith(f"protection.{key}: {pattern!r} matches")
    assert all(repr(name) in str(refused.value) for name in FLOATS)


def test_a_clip_of_what_stays_home_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"protection\.clip: 'head\.\*' matches no array"):
        selected(private=("head.*",), clip={"*": 1.0, "head.*": 2.0})
    with pytest.raises(ConfigError, match=r"protection\.clip .*no pattern for array 'head.weight'"):
        selected(clip={"body.*": 1.0})


@pytest.mark.parametrize("name", ["body.1.num_batches_tracked", "*.num_batches_tracked", "*seen"])
def test_whole_numbers_that_are_named_are_refused(name: str) -> None:
    refused = r"array '(seen|body.1.num_batches_tracked)' holds (bool|int64): whole numbers"
    with pytest.raises(ConfigError, match=refused):
        selected(shared=("*", name))
    assert selected(shared=("*", name), private=(name,)) == FLOATS


@pytest.mark.parametrize("kind", ["complex64", "longdouble", "datetime64[s]", "S3"])
def test_what_no_mean_is_taken_of_is_refused_unless_it_stays_home(kind: str) -> None:
    model = {**MODEL, "odd": np.zeros(2, dtype=kind)}
    with pytest.raises(ConfigError, match=r"'odd' .*of which no mean is taken"):
        terms().select(model)
    assert list(terms(private=("odd",)).select(model).shapes) == FLOATS


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_is_not_finite_is_refused_where_it_is_shared(value: float) -> None:
    model = {**MODEL, "head.weight": np.full((4, 2), value, np.float16)}
    with pytest.raises(EncodingError, match=r"'head\.weight' .*not finite"):
        terms().select(model)
    assert list(terms(private=("head.*",)).select(model).shapes) == FLOATS[:2]


@pytest.mark.parametrize(
    "options", [{"shared": ()}, {"shared": "*"}, {"clip": {}}, {"clip": {"*": 0.0}}]
)
def test_terms_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=rf"^protection\.{next(iter(options))} "):
        terms(**options)


def test_the_digest_covers_what_is_shared() -> None:
    kinds: list[dict[str, Any]] = [
        {},
        {"shared": ("*", "*.running_mean")},
        {"private": ("head.*",)},
        {"clip": {"*": 4.0}},
        {"clip": {"*": 4.0, "head.*": 1.0}},
        {"clip": {"*": 4.0, "head.*": 2.0}},
    ]
    assert len({terms(**each).digest for each in kinds}) == len(kinds)
    one, other = {"*": 4.0, "head.*": 1.0}, {"head.*": 1.0, "*": 4.0}
    assert terms(clip=one).digest == terms(clip=other).digest  # their order means nothing


def test_trained_names_what_takes_a_gradient() -> None:
    nn = pytest.importorskip("torch").nn

    class Net(nn.Module):  # type: ignore[name-defined,misc]
        def __init__(self) -> None:
            super().__init__()
            self.frozen = nn.Linear(2, 2).requires_grad_(False)
            self.norm = nn.BatchNorm1d(2)
            self.emb, self.out = nn.Embedding(3, 2), nn.Linear(2, 3, bias=False)
            self.out.weight = self.emb.weight  # one parameter of two names
            self.more = nn.ParameterDict({"a[0]": nn.Parameter(nn.Linear(2, 2).weight.detach())})

    net = Net()
    model = {name: each.numpy() for name, each in net.state_dict().items()}
    due = ["emb.weight", "more.a[0]", "norm.bias", "norm.weight", "out.weight"]
    assert list(terms(shared=trained(net)).select(model).shapes) == due


def filled(name: str) -> st.SearchStrategy[np.ndarray]:
    like, number = MODEL[name], st.floats(-100, 100, width=16)
    rows = st.lists(number, min_size=like.size, max_size=like.size)
    return rows.map(lambda values: np.array(values).astype(like.dtype).reshape(like.shape))


arrays_of = st.fixed_dictionaries({name: filled(name) for name in MODEL})


@given(before=arrays_of, after=arrays_of)
def test_a_model_that_moves_by_what_it_moved_by_is_the_other(
    before: dict[str, np.ndarray], after: dict[str, np.ndarray]
) -> None:
    """In what is shared, of each array's dtype; all else is as it was, to the bit."""
    shared = terms(private=("body.0.*",)).select(before)
    joined = shared.join(shared.moved(before, after))
    assert joined.shape == (shared.length,)
    found = shared.moved_by(before, shared.split(joined))
    assert list(found) == list(before)
    for name, each in found.items():
        assert each.dtype == before[name].dtype
        np.testing.assert_array_equal(each, (after if name in shared.shapes else before)[name])


@pytest.mark.parametrize("step", [30.0, np.inf, np.nan])
def test_a_mean_that_leaves_an_arrays_dtype_is_refused(step: float) -> None:
    small = {"w": np.array([65504.0], dtype=np.float16)}
    shared = terms().select(small)
    assert shared.moved_by(small, {"w": np.array([-30.0])})["w"][0] == np.float16(65474.0)
    with pytest.raises(EncodingError, match="'w' leaves float16"):
        shared.moved_by(small, {"w": np.array([step])})


@pytest.mark.parametrize("kind", [MaskedMean, NoisedMean])
@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (np.array([1 + 2j]), "must hold real numbers"),
        (np.array(["1"]), "must hold real numbers"),
        (np.array([1], dtype="timedelta64[s]"), "must hold real numbers"),
        (np.array([1.0], dtype=object), "must hold real numbers"),
        (np.ma.array([1.0], mask=[True]), r"'w' is a numpy\.ma\.MaskedArray"),
        (np.zeros((1, 1)), r"'w' has not the model's shape, \(1,\)"),
        (None, "'w' is shared, and is missing"),
    ],
    ids=["complex", "text", "time", "object", "gaps", "shape", "missing"],
)
def test_an_update_of_other_arrays_is_refused(kind: type, values: Any, problem: str) -> None:
    shared = SharedArrays(shapes={"w": (1,)}, home=("stays",))
    arrays = {"stays": np.zeros(1)} | ({} if values is None else {"w": values})
    with pytest.raises(EncodingError, match=problem):
        terms(kind).encode(Update(arrays=arrays), at(4), shared)
    with pytest.raises(EncodingError, match="arrays that the model does not have"):
        terms(kind).encode(Update(arrays={"w": np.zeros(1), "other": np.zeros(1)}), at(4), shared)


def at(clients: int) -> Standing:
    roster: Any = None  # means do not look at it
    numbers = np.arange(clients)
    return Standing(
        round=1,
        serial=1,
        clients=numbers,
        present=numbers,
        statement=about(b"s" * 32),
        series=bytes(16),
        roster=roster,
    )


def mean_of(terms: Any, updates: list[Update]) -> Mapping[str, np.ndarray]:
    """What a server reads from the sum of clients' words."""
    shared, standing = terms.select(MODEL), at(len(updates))
    encoded = [terms.encode(each, standing, shared) for each in updates]
    words = encoded[0].words.copy()
    for each in encoded[1:]:
        words += each.words
    bits = encoded[0].bits
    words &= words.dtype.type(2**bits - 1)
    mean = terms.decode(words, standing, shared, survivors=len(updates))
    assert list(mean.arrays) == list(shared.shapes)
    return dict(mean.arrays)


CLIPS = {"*": 1.0, "head.*": 1000.0, "body.0.*": 1e-4}
BOUNDS = dict(zip(FLOATS, (1e-4, 1.0, 1000.0), strict=True))


def moved(seed: int, within: float) -> dict[str, np.ndarray]:
    """Within each array's clip, and far beyond all of them where an array stays home."""
    rng = np.random.default_rng(seed)
    return {
        name: np.asarray(rng.uniform(-within, within, each.shape) * BOUNDS.get(name, 1e9))
        for name, each in MODEL.items()
    }


def test_every_array_has_a_clip_and_a_scale_of_its_own() -> None:
    """A small one keeps its digits beside a large one: 7 more by the powers of two between."""
    found = terms(clip=CLIPS, fraction_bits=16, metrics={"loss": 5.0})
    updates = [
        Update(arrays=moved(n, 1.0), weight=n + 1, metrics={"loss": n + 0.5}) for n in range(4)
    ]
    mean = mean_of(found, updates)
    weights = [each.weight for each in updates]
    for name, digits in zip(FLOATS, (16 + 23, 16 + 9, 16), strict=True):
        due = np.average([each.arrays[name] for each in updates], axis=0, weights=weights)
        error = np.abs(mean[name] - due).max()
        assert error <= 2.0 ** -(digits + 1)
        assert error > 0  # of the ring's grid


@pytest.mark.claim("means-shared-arrays")
@pytest.mark.parametrize("name", FLOATS)
def test_no_value_passes_the_clip_of_its_array(name: str) -> None:
    found, shared = terms(clip=CLIPS), terms(clip=CLIPS).select(MODEL)
    arrays = moved(1, 0.5)
    found.encode(Update(arrays=arrays), at(4), shared)
    for value in (1.01 * BOUNDS[name], -1.01 * BOUNDS[name], np.nan):
        beyond = arrays[name].copy()
        beyond.flat[-1] = value
        with pytest.raises(EncodingError, match=rf"array '{name}' moved beyond its clip"):
            found.encode(Update(arrays={**arrays, name: beyond}), at(4), shared)


@pytest.mark.claim("means-shared-arrays")
def test_what_stays_home_reaches_no_clip() -> None:
    """Whole numbers and statistics that moved by 10^9 shorten nothing under noise."""
    small = {name: each / BOUNDS.get(name, 1.0) for name, each in moved(1, 0.5).items()}
    small["body.1.num_batches_tracked"] = np.array(10**9)
    assert np.linalg.norm(np.concatenate([small[name].ravel() for name in FLOATS])) < 4.0
    found = terms(NoisedMean)
    mean = mean_of(found, [Update(arrays=small)] * 4)
    noise = found.deviation(clients=4, length=found.select(MODEL).length, survivors=4)
    for name in FLOATS:
        np.testing.assert_allclose(mean[name], small[name], rtol=0, atol=8 * noise)
    assert max(np.abs(small[name]).max() for name in FLOATS) > 16 * noise


def test_settings_survive_being_written_out() -> None:
    found = terms(clip=CLIPS, private=("head.*",))
    assert MaskedMean(**asdict(found)).digest == found.digest
