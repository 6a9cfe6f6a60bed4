"""The search for settings: it widens by itself, is resumed to the same studies, has one budget."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from audits.reproduction.fed3cr.paper import Place, load_paper
from audits.reproduction.fed3cr.search import WORST, Axis, Point, Setting, Space
from secure_fedrec.studies.fed3cr.methods import FAMILY, METHODS, build_method

PLENTY = 1000
RATE = Axis(keys=("rate",), start=1.0)
DECAY = Axis(keys=("decay",), start=0.0, unit=1e-3, ratio=10.0)
SHARE = Axis(keys=("one", "other"), start=(0.5, 0.5), values=((0.0, 0.0), (0.5, 0.5), (1.0, 0.0)))
SPACE = Space((RATE, DECAY, SHARE), {"rank": 8})


def run(
    space: Space,
    merit: Callable[[Mapping[str, Any]], float],
    budget: int = PLENTY,
    known: dict[Setting, float] | None = None,
    most: int = PLENTY,
) -> tuple[list[Point], bool, dict[Setting, float]]:
    """Make what a search asks for; its points, whether it ended, and what is known then."""
    known = {} if known is None else known
    for _ in range(most):
        found = space.search(known, budget)
        if found.next is None:
            break
        assert found.next not in known
        known[found.next] = merit(dict(found.next))
    return found.tried, found.ended, known


def beside(space: Space, point: Point) -> set[Point]:
    """The next points along every axis, all else the same."""
    return {
        (*point[:place], rung, *point[place + 1 :])
        for place, axis in enumerate(space.axes)
        for way in axis.ways(point[place])
        for rung in islice(way, 1)
    }


def peak(rate: float, decay: float, one: float) -> Callable[[Mapping[str, Any]], float]:
    """Merit that falls from one setting on, along each axis by itself."""

    def merit(setting: Mapping[str, Any]) -> float:
        away = abs(math.log10(setting["rate"] / rate))
        away += abs(math.log10((setting["decay"] + 1e-5) / (decay + 1e-5)))
        return float(-away - abs(setting["one"] - one))

    return merit


@given(st.integers(-8, 8), st.integers(-1, 2), st.booleans(), st.sampled_from([0.0, 0.5, 1.0]))
def test_a_search_ends_inside_wherever_the_best_is(
    rung: int, decades: int, nought: bool, one: float
) -> None:
    """The best rate may lie four decades away: no end is given that it would stop at."""
    rate, decay = RATE.settings(rung)["rate"], 0.0 if nought else 10.0 ** (decades - 3)
    tried, ended, known = run(SPACE, peak(rate, decay, one))
    best: dict[str, Any] = dict(max(known.items(), key=lambda each: each[1])[0])
    assert (best["rate"], best["decay"], best["one"]) == (rate, decay, one)
    assert ended
    point = next(each for each in tried if dict(SPACE.setting(each)) == best)
    assert SPACE.edges(point, tried) == []
    assert beside(SPACE, point) <= set(tried)
    along = SPACE.along({each: known[SPACE.setting(each)] for each in tried})
    assert list(along) == ["rate", "decay", "one+other"]
    for own in along.values():
        assert max(own.values()) == max(known.values())
        values = [float(each.partition("+")[0]) for each in own]
        assert values == sorted(values)
    assert best["rank"] == 8


@given(st.integers(1, 40), st.integers(1, 12))
def test_a_search_goes_on_to_the_same_studies(stop: int, budget: int) -> None:
    """Whatever was made before, and a smaller budget tries the first of what a larger one tries."""
    merit = peak(320.0, 1e-4, 1.0)
    whole, _, known = run(SPACE, merit)
    _, _, some = run(SPACE, merit, most=stop)
    assert run(SPACE, merit, known=some)[0] == whole
    few, ended, _ = run(SPACE, merit, budget)
    assert few == whole[:budget]
    assert ended == (budget > len(whole))
    assert [SPACE.setting(each) for each in whole] == list(known)


def test_what_is_left_at_an_edge_is_told() -> None:
    merit = peak(1e6, 0.0, 0.5)
    tried, ended, known = run(SPACE, merit, budget=5)
    assert not ended
    assert len(tried) == len(known) == 5
    best = max(tried, key=lambda point: known[SPACE.setting(point)])
    assert SPACE.edges(best, tried) == ["rate", "decay", "one+other"]
    assert dict(SPACE.setting(best))["rate"] == 100.0


def test_a_gain_within_noise_moves_nothing_but_the_best_is_inside() -> None:
    space = Space((RATE,), {}, gain=0.1)
    tried, ended, _ = run(space, lambda setting: min(0.05 * setting["rate"], 0.5))
    assert ended
    assert tried == [(0,), (1,), (2,), (3,), (2.5,), (1.5,)]  # 0.05, 0.16, 0.5, 1.6, 0.9, 0.28
    tried, ended, _ = run(space, lambda setting: min(0.02 * setting["rate"] ** 0.5, 0.03))
    assert ended
    assert tried[:4] == [(0,), (1,), (-1,), (2,)]  # the last as 1 was the end, and the best
    assert tried[4:] == [(0.5,), (-0.5,)]


def test_half_steps_find_what_lies_between_the_rungs() -> None:
    tried, ended, known = run(SPACE, peak(180.0, 3e-3, 0.5))
    assert ended
    best = dict(max(known.items(), key=lambda each: each[1])[0])
    assert (best["rate"], best["decay"]) == (180.0, 3.2e-3)
    between = [point for point in tried if any(rung is not None and rung % 1 for rung in point)]
    assert tried[-len(between) :] == between
    whole = Axis(keys=("a",), start=1)
    assert [list(islice(way, 1)) for way in whole.ways(0, 0.5)] == [[1], []]  # 1.8 is 1
    assert SHARE.ways(1, 0.5) == DECAY.ways(None, 0.5) == []


def test_what_diverges_is_not_gone_beyond() -> None:
    tried, ended, _ = run(
        Space((RATE,), {}), lambda setting: WORST if setting["rate"] > 1 else setting["rate"]
    )
    assert ended
    assert tried == [(0,), (1,), (-1,), (0.5,), (-0.5,)]


def test_values_of_axes() -> None:
    rounded = [Axis(keys=("a",), start=1000.0).settings(rung)["a"] for rung in range(-2, 3)]
    assert rounded == [100.0, 320.0, 1000.0, 3200.0, 10000.0]
    whole = Axis(keys=("a",), start=256)
    assert whole.settings(0) == {"a": 256}
    assert [list(islice(way, 2)) for way in Axis(keys=("a",), start=1).ways(0)] == [[1, 2], []]
    epochs = Axis(keys=("a",), start=10)
    assert [epochs.settings(rung)["a"] for way in epochs.ways(0) for rung in islice(way, 2)] == [
        32,
        100,
        3,
        1,
    ]
    gap = Axis(keys=("a",), start=0.05, gap=True, nought=True, most=0.9)
    below = [gap.settings(rung)["a"] for way in gap.ways(0) for rung in islice(way, 3)]
    assert below == [0.84, 0.5, 0.984, 0.995, 0.9984, 1.0]
    both = Axis(keys=("a", "b"), start=0.01)
    assert both.settings(1) == {"a": 0.032, "b": 0.032}
    assert SHARE.settings(2) == {"one": 1.0, "other": 0.0}
    assert [list(way) for way in SHARE.ways(1)] == [[2], [0]]
    listed = Axis(keys=("a",), start=0.0, values=(0.0, 1e-5))
    assert listed.begin() == 0
    assert [list(way) for way in listed.ways(0)] == [[1], []]
    between = Axis(keys=("a",), start=3000.0, unit=1000.0, digits=1)
    assert between.settings(between.begin()) == {"a": 3000.0}
    assert [between.settings(rung)["a"] for rung in range(-1, 2)] == [300.0, 1000.0, 3000.0]


def told_or_not(space: Space) -> list[dict[str, Any]]:
    """The first setting, without and with what is as by default."""
    axes = [replace(axis, usual=False) for axis in space.axes]
    whole = [each.settings(each.begin()) for each in axes]
    told = {**space.fixed, **{key: value for own in whole for key, value in own.items()}}
    return [dict(space.setting(tuple(axis.begin() for axis in space.axes))), told]


def test_every_method_has_the_same_budget_and_settings_that_there_are() -> None:
    paper = load_paper(quick=False)
    for method in METHODS:
        if method.removeprefix("fed3cr-over-") not in FAMILY:
            continue
        space = paper.space(method)
        start = tuple(axis.begin() for axis in space.axes)
        assert len(beside(space, start)) >= len(space.axes)
        for point in (start, *beside(space, start)):
            build_method(method, dict(space.setting(point)), rounds=1, n_items=4)
        begun = [build_method(method, each, rounds=1, n_items=4) for each in told_or_not(space)]
        assert begun[0].knowledge() == begun[1].knowledge(), method


def test_a_method_may_train_longer_where_it_is_tuned() -> None:
    paper, place = load_paper(quick=False), Place("ml-100k", "clean")
    own = paper.clean["rounds_of_method"][place.data]
    assert own.keys() <= {*paper.table2["ml-100k"]}
    for method in paper.table2["ml-100k"]:
        assert paper.rounds(place, method=method) == own.get(method, paper.rounds(place))
        assert paper.rounds(place, "ablation", method) == paper.rounds(place, "ablation")
    assert paper.rounds(place, "ablation") < paper.rounds(place) < min(own.values())
