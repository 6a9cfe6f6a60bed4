"""Hypothesis strategies for small federations, including edge cases that break protocols.

Import this module by name; it needs Hypothesis. The shortest test of an own algorithm::

    from hypothesis import given
    from secure_fedrec.properties import assert_lossless
    from secure_fedrec.properties.strategies import Federation, federations

    @given(federation=federations(width=2))
    def test_my_recommender_is_lossless(federation: Federation) -> None:
        assert_lossless(algorithm=lambda: MyRecommender(rank=2), **federation.arguments())

The drawn value is printed with the falsifying example as code, to be put into a regular test below
the imports that are printed with it; a comment there names what cannot be imported. Defaults keep a
federation small enough for some milliseconds per example.
"""

from secure_fedrec.errors import brought_by

with brought_by("properties"):
    from hypothesis import strategies as st

from dataclasses import replace
from typing import Any

import numpy as np

from secure_fedrec.algorithms.pmf import PMFConfig
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.properties.strategies.federation import (
    WHOLE_STARS,
    Federation,
    MakesCollector,
    Ratings,
    fault_of,
    federation_of,
    ratings_of,
    scope_of,
    stack_of,
    whole_groups,
)
from secure_fedrec.properties.strategies.imports import telling, told
from secure_fedrec.properties.strategies.layers import (
    CLOAKS,
    codecs,
    randomized_responses,
    stack_arguments,
    stacks,
    virtual_ratings,
)
from secure_fedrec.protection import Denoisers
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Fault, Step

__all__ = [
    "CLOAKS",
    "SCALES",
    "Federation",
    "codecs",
    "cohorts",
    "fault_of",
    "faults",
    "federation_of",
    "federations",
    "latent_vectors",
    "pmf_configs",
    "randomized_responses",
    "rating_tables",
    "ratings_of",
    "stack_of",
    "stacks",
    "streams",
    "virtual_ratings",
    "whole_groups",
]

SCALES = (WHOLE_STARS, RatingScale(0.5, 5.0, 0.5))
"""Whole stars (ML-100K, ML-1M) and half stars (ml-latest-small)."""

_CORNERS = 32
"""One example in this many is an arbitrary federation, or a small one to which others shrink."""


@told()
def streams() -> st.SearchStrategy[Streams]:
    """Random streams of any seed.

    Example::

        @given(streams=streams())
        def test_my_draw_is_a_function_of_the_seed(streams: Streams) -> None: ...
    """
    return _streams()


def _streams() -> st.SearchStrategy[Streams]:
    # With ``map``, Hypothesis would print the call without its class.
    return st.integers(0, 2**128 - 1).flatmap(lambda seed: st.just(Streams.from_seed(seed)))


@st.composite
@telling
def rating_tables(
    draw: st.DrawFn,
    *,
    min_clients: int = 2,
    max_clients: int = 8,
    min_items: int = 1,
    max_items: int = 12,
) -> Ratings:
    """Any small rating set.

    Clients may have rated nothing, one item, all items but one, or all; items may have no rating,
    one, or one by every client; stars are whole or half. Some are of the largest size.

    Args:
        draw: given by Hypothesis.
        min_clients: fewest clients.
        max_clients: most clients.
        min_items: fewest items, at least 1.
        max_items: most items.

    Example::

        @given(table=rating_tables(max_clients=5))
        def test_my_index_holds_every_rating(table: RatingTable) -> None: ...
    """
    n_clients = draw(st.integers(min_clients, max_clients))
    n_items = draw(st.integers(min_items, max_items))
    if draw(st.sampled_from(range(_CORNERS))) == _CORNERS - 1:
        n_clients, n_items = max_clients, max_items
    scale = draw(st.sampled_from(SCALES))
    sets = st.lists(_rated_sets(n_items), min_size=n_clients, max_size=n_clients)
    rated = draw(sets)
    levels = st.sampled_from(scale.levels.tolist())
    number = sum(map(sum, rated))
    stars = iter(draw(st.lists(levels, min_size=number, max_size=number)))
    found = {
        client: {item: next(stars) for item, there in enumerate(each) if there}
        for client, each in enumerate(rated)
    }
    return ratings_of(found, items=n_items, scale=scale)


@told()
def cohorts(n_clients: int) -> st.SearchStrategy[CohortConfig]:
    """Invitations: all clients, or any number of clients per round.

    With few clients per round some rounds have no participant, because a client and its denoiser
    must both be invited.

    Example::

        @given(data=st.data())
        def test_my_collector_sits_out_lonely_clients(data: st.DataObject) -> None:
            cohort = data.draw(cohorts(n_clients=6))
    """
    return _cohorts(n_clients)


def _cohorts(n_clients: int) -> st.SearchStrategy[CohortConfig]:
    sizes = st.none() | st.integers(1, n_clients)
    return st.builds(CohortConfig, clients_per_round=sizes)


@told()
def pmf_configs(
    *,
    max_rank: int = 3,
    max_rounds: int = 6,
    temperatures: st.SearchStrategy[float] | None = None,
    biases: st.SearchStrategy[bool] | None = None,
) -> st.SearchStrategy[PMFConfig]:
    """Settings of PMF under which a handful of rounds stays inside the rings of ``codecs``.

    Args:
        max_rank: largest d.
        max_rounds: most rounds.
        temperatures: of the Langevin noise; None means 0.
        biases: whether items have one; None means not. With them a row has one value more than the
            rank, and Langevin noise is off.

    Example::

        @given(config=pmf_configs(temperatures=st.floats(0.001, 0.1)))
        def test_my_noise_has_the_right_scale(config: PMFConfig) -> None: ...
    """
    return st.builds(
        PMFConfig,
        rank=st.integers(1, max_rank),
        rounds=st.integers(1, max_rounds),
        # Larger steps can diverge from vectors of length 1, and a diverged row fits no ring.
        learning_rate=st.floats(0.01, 0.1),
        decay=st.floats(0.5, 1.0),
        regularization=st.sampled_from((0.0, 0.001, 0.1)),
        init_scale=st.sampled_from((0.005, 0.1, 0.5)),
        # NumPy scalars are converted to Python's, which print without an import.
        temperature=st.just(0.0)
        if temperatures is None
        else temperatures.flatmap(lambda each: st.just(float(each))),
        biases=st.just(False) if biases is None else biases,
        bias_shrinkage=st.sampled_from((0.0, 1.0, 4.0)),
        slope_shrinkage=st.sampled_from((0.5, 5.0)),
    )


@st.composite
@telling
def latent_vectors(draw: st.DrawFn, rows: int, width: int, *, limit: float = 1.0) -> FloatArray:
    """Tables float64[rows, width] with entries up to ``limit``, some of them zeros, tiny or equal.

    One in sixteen holds one value throughout, 0 included.

    Example::

        @given(items=latent_vectors(rows=12, width=2))
        def test_from_any_state(items: FloatArray) -> None:
            assert_lossless(algorithm=lambda: Started(mine(), public=items), ...)
    """
    entries = st.sampled_from((0.0, -0.0, limit, -limit, 5e-324)) | st.floats(-limit, limit)
    table = np.random.default_rng(draw(st.integers(0, 2**32))).uniform(-limit, limit, (rows, width))
    some = draw(st.dictionaries(st.integers(0, rows * width - 1), entries, max_size=4))
    for place, value in some.items():
        table.flat[place] = value
    if draw(st.sampled_from(range(16))) == 1:
        table[:] = draw(entries)
    return table


@told(fault_of)
def faults(
    *,
    max_round: int = 6,
    steps: tuple[Step, ...] = (Step.UPLOAD, Step.NOISE, Step.DENOISE),
    kinds: tuple[str, ...] = ("drop", "repeat", "delay", "alter"),
) -> st.SearchStrategy[Fault]:
    """One message lost, delivered twice, delivered a round late, or changed by one bit.

    Its ``chooser`` is a fresh ``Strike``; ``chooser.hits`` tells whether a message was there.

    Example::

        @given(federation=federations(width=2), fault=faults(kinds=("drop",)))
        def test_my_collector_never_sums_without_a_client(federation, fault) -> None:
            run = federation.arguments(faults=(fault,))
            try:
                assert_lossless(algorithm=mine, **run)  # the fault may find no message to lose
            except ProtocolError:
                assert fault.chooser.hits
    """
    names = st.sampled_from([step.name for step in steps])
    rounds, places = st.integers(1, max_round), st.integers(0, 7)
    return st.builds(fault_of, st.sampled_from(kinds), names, round_=rounds, place=places)


@st.composite
@telling
def federations(
    draw: st.DrawFn,
    *,
    width: int,
    cloaks: tuple[str, ...] | None = None,
    collectors: tuple[MakesCollector, ...] = (),
    max_clients: int = 8,
    max_items: int = 12,
    max_rounds: int = 6,
    telling: bool | None = None,
) -> Federation:
    """A whole federation: ratings, seed, stack, cohort and number of rounds.

    Most federations can show mistakes: they have a served group, a denoiser with ratings in it, a
    client with virtual rows, and a second round. One in thirty-two is an arbitrary federation with
    at least one upload, or one of fewer items and rounds, which a failing example shrinks to. It
    prints as the ``federation_of`` that makes it.

    Args:
        draw: given by Hypothesis.
        width: values per row that the algorithm uploads.
        cloaks: see ``stacks``; "none" is for the one in thirty-two, if there are others. None for
            both kinds whose virtual rows denoisers remove, or for no cloak under other collectors.
        collectors: what makes the collectors to be drawn, from ``n_clients``, ``n_items``,
            ``width`` and ``codec``; without any, denoisers are drawn.
        max_clients: most clients, at least 2.
        max_items: most items; below 4 virtual rows may be few.
        max_rounds: most rounds.
        telling: whether all of them can show mistakes; None draws it.

    Example: see the module docstring.
    """
    small = False
    if telling is None:
        corner = draw(st.sampled_from(range(2 * _CORNERS)))
        telling, small = corner > 0, corner == 1
    fewest, least = (min(5, max_items), min(2, max_rounds)) if telling and not small else (1, 1)
    table = draw(rating_tables(max_clients=max_clients, min_items=fewest, max_items=max_items))
    run_streams = draw(_streams())
    collector = draw(st.sampled_from(collectors)) if collectors else None
    if cloaks is None:
        cloaks = CLOAKS[2:] if collectors else CLOAKS[:2]
    layers: dict[str, Any] = {"cloaks": cloaks, "telling": telling, "collector": collector}
    stack = stack_of(**draw(stack_arguments(table, width=width, streams=run_streams, **layers)))
    drawn = Federation(
        ratings=table,
        streams=run_streams,
        stack=stack,
        rounds=draw(st.integers(least, max_rounds)),
        cohort=draw(_cohorts(table.n_clients)),
        scope=scope_of(stack),
        made=None if collector is None else (stack.collector, collector, width),
    )
    return _served(drawn, telling=telling)


def _served(federation: Federation, *, telling: bool) -> Federation:
    """The federation with clients at work, of denoisers with a group, two of whom have ratings."""
    rounds = range(1, federation.rounds + 1)
    if not any(len(federation.taking_part(round_)) for round_ in rounds):
        federation = replace(federation, cohort=CohortConfig())
    present = next(found for found in map(federation.taking_part, rounds) if len(found))
    first, *second = present[:2]
    if isinstance(federation.stack.collector, Denoisers):
        binding = federation.stack.collector.binding
        first = present[binding.is_denoiser[present]][0]
        group = binding.group[present] == binding.group[first]
        second = present[group & (present != first)][:1].tolist()
    table, n_items = federation.ratings, federation.ratings.n_items
    rated = table.counts()
    if telling:
        most = max(1, n_items // 2)
        changes = {first: (1, n_items)} | {client: (min(2, most), most) for client in second}
    else:  # some row must be sent, or nothing would be compared
        somebody = federation.scope.drops_reports or not rated[present].any()
        changes = {first: (1, n_items)} if somebody else {}
    for who, (least, most) in changes.items():
        if not least <= rated[who] <= most:
            table = _with_ratings(table, int(who), min(max(rated[who], least), most))
    remade: Federation = federation_of(**federation.call()[1] | {"ratings": table})
    return remade


def _with_ratings(table: RatingTable, client: int, number: int) -> Ratings:
    """The table with another number of ratings of a client, its first items' first."""
    _, made = Ratings.of(table).call()
    found = dict(made["ratings"])
    had = found[client]
    items = [*had, *(item for item in range(table.n_items) if item not in had)][:number]
    found[client] = {item: had.get(item, table.scale.high) for item in items}
    return ratings_of(found, items=table.n_items, scale=table.scale)


def _rated_sets(n_items: int) -> st.SearchStrategy[list[bool]]:
    def bits(number: int) -> list[bool]:
        return [bool(number >> item & 1) for item in range(n_items)]

    every = 2**n_items - 1
    one = st.integers(0, n_items - 1).map(lambda item: 1 << item)
    corners = st.sampled_from((0, every)) | one | one.map(lambda item: every ^ item)
    return (corners | st.integers(0, every)).map(bits)
