"""Hypothesis strategies for small federations, with the corners in which protocols break.

Import this module by name; it needs Hypothesis. The shortest test of an own algorithm::

    from hypothesis import given
    from secure_fedrec.properties import assert_lossless
    from secure_fedrec.properties.strategies import Federation, federations

    @given(federation=federations(width=2))
    def test_my_recommender_is_lossless(federation: Federation) -> None:
        assert_lossless(algorithm=lambda: MyRecommender(rank=2), **federation.arguments())

What a strategy drew is printed with the falsifying example, in words that can be typed into a
regular test. Defaults keep a federation small enough for some milliseconds per example.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from secure_fedrec.algorithms.pmf import PMFConfig
from secure_fedrec.arrays import FloatArray
from secure_fedrec.data import RatingScale, RatingTable
from secure_fedrec.engines.local import CohortConfig
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties.strike import Strike
from secure_fedrec.protection import (
    Cloak,
    Denoisers,
    DenoisersConfig,
    RandomizedResponse,
    RandomizedResponseConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.protection.virtual_ratings import DRAWS, FILLINGS
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Alter, Delay, Drop, Fault, Repeat, Step

try:
    from hypothesis import note
    from hypothesis import strategies as st
except ImportError as absent:
    raise ImportError(
        "secure_fedrec.properties.strategies needs Hypothesis: pip install "
        "'secure-fedrec[properties]'"
    ) from absent

__all__ = [
    "CLOAKS",
    "SCALES",
    "Federation",
    "codecs",
    "cohorts",
    "faults",
    "federations",
    "latent_vectors",
    "pmf_configs",
    "randomized_responses",
    "rating_tables",
    "stacks",
    "streams",
    "virtual_ratings",
]

SCALES = (RatingScale(1.0, 5.0, 1.0), RatingScale(0.5, 5.0, 0.5))
"""Whole stars (ML-100K, ML-1M) and half stars (ml-latest-small)."""

CLOAKS = ("virtual-ratings", "randomized-response", "none")
"""Under denoisers: FedRec++, SDCF with denoisers, FedRec++ at rho = 0."""

_CLIP = 256.0


def streams() -> st.SearchStrategy[Streams]:
    """Random streams of any seed.

    Example::

        @given(streams=streams())
        def test_my_draw_is_a_function_of_the_seed(streams: Streams) -> None: ...
    """
    return st.builds(Streams.from_seed, st.integers(0, 2**128 - 1))


@st.composite
def rating_tables(
    draw: st.DrawFn, *, min_clients: int = 2, max_clients: int = 8, max_items: int = 12
) -> RatingTable:
    """Any small rating set.

    Clients may have rated nothing, one item, all items but one, or all; items may have no rating,
    one, or one by everybody; stars are whole or half.

    Args:
        draw: given by Hypothesis.
        min_clients: fewest clients.
        max_clients: most clients.
        max_items: most items; the fewest is 1.

    Example::

        @given(table=rating_tables(max_clients=5))
        def test_my_index_holds_every_rating(table: RatingTable) -> None: ...
    """
    n_clients = draw(st.integers(min_clients, max_clients))
    n_items = draw(st.integers(1, max_items))
    scale = draw(st.sampled_from(SCALES))
    sets = st.lists(_rated_sets(n_items), min_size=n_clients, max_size=n_clients)
    rated = np.array(draw(sets), dtype=bool).reshape(n_clients, n_items)
    clients, items = np.nonzero(rated)
    levels = st.sampled_from(scale.levels.tolist())
    stars = draw(st.lists(levels, min_size=len(clients), max_size=len(clients)))
    note({"items": n_items, "ratings": _by_client(n_clients, clients.tolist(), items, stars)})
    return RatingTable(
        name="drawn",
        n_clients=n_clients,
        n_items=n_items,
        clients=clients.astype(np.int32),
        items=items.astype(np.int32),
        ratings=np.array(stars, dtype=np.float64),
        scale=scale,
        client_labels=np.arange(n_clients),
        item_labels=np.arange(n_items),
    )


def cohorts(n_clients: int) -> st.SearchStrategy[CohortConfig]:
    """Invitations: everybody, or any number of clients per round.

    With few clients per round some rounds have no participant, because a client and its denoiser
    must both be invited.

    Example::

        @given(data=st.data())
        def test_my_collector_sits_out_lonely_clients(data: st.DataObject) -> None:
            cohort = data.draw(cohorts(n_clients=6))
    """
    sizes = st.none() | st.integers(1, n_clients)
    return st.builds(CohortConfig, clients_per_round=sizes)


@st.composite
def codecs(draw: st.DrawFn, n_clients: int) -> FixedPoint:
    """Rings of 24 to 64 bits, often 32 or 64, that hold any sum of ``n_clients`` rows.

    Values up to 256 fit; every second ring has as many fraction bits as its sum budget allows.

    Example::

        @given(codec=codecs(n_clients=3))
        def test_my_sums_survive(codec: FixedPoint) -> None: ...
    """
    bits = draw(st.sampled_from((32, 64)) | st.integers(24, 64))
    # n * clip * 2^f < 2^(bits - 1), and a float64 must keep the digits below clip.
    most = bits - 1 - (int(_CLIP) * n_clients).bit_length()
    most = min(most, 51 - int(_CLIP).bit_length() + 1)
    digits = draw(st.just(most) | st.integers(min(most, 6), most))
    return FixedPoint(bits=bits, fraction_bits=digits, clip=_CLIP)


@st.composite
def virtual_ratings(draw: st.DrawFn, *, n_items: int, streams: Streams) -> VirtualRatings:
    """FedRec's cloak: rho 0, fractional, or so large that every client is capped; any draw.

    Example: see ``stacks``, which draws from it.
    """
    rhos = st.sampled_from((0.0, 0.3, 0.5, 1.0, 2.5, 3.0, float(n_items))) | st.floats(0, 4)
    config = VirtualRatingsConfig(
        rho=draw(rhos),
        filling=draw(st.sampled_from(FILLINGS)),
        predict_after=draw(st.integers(0, 3)),
        local_steps=draw(st.integers(1, 4)),
        sticky=draw(st.booleans()),
        draw=draw(st.sampled_from(DRAWS)),
    )
    popularity = np.random.default_rng(draw(st.integers(0, 2**32))).integers(0, 40, n_items)
    return VirtualRatings(config, n_items=n_items, streams=streams, popularity=popularity)


@st.composite
def randomized_responses(draw: st.DrawFn, *, n_items: int, streams: Streams) -> RandomizedResponse:
    """SDCF's cloak: from truthful reports to noise, rated items dropped or not.

    Example: see ``stacks``, which draws from it.
    """
    config = RandomizedResponseConfig(
        permanent=draw(st.sampled_from((0.0, 0.1, 1.0)) | st.floats(0, 1)),
        report_one=draw(st.just(1.0) | st.floats(0.5, 1)),
        report_zero=draw(st.just(0.0) | st.floats(0, 0.49)),
    )
    return RandomizedResponse(config, n_items=n_items, streams=streams)


@st.composite
def stacks(
    draw: st.DrawFn,
    table: RatingTable,
    *,
    width: int,
    streams: Streams,
    cloaks: tuple[str, ...] = CLOAKS[:2],
) -> Stack:
    """Stacks that claim to be lossless: a cloak, a ring, and 1 to n / 2 denoisers.

    Args:
        draw: given by Hypothesis.
        table: training ratings; two clients or more.
        width: values per uploaded row.
        streams: the run's random streams.
        cloaks: drawn from these names of ``CLOAKS``.

    Raises:
        ConfigError: an unknown cloak.

    Example::

        @given(data=st.data(), table=rating_tables(), streams=streams())
        def test_my_recommender(data: st.DataObject, table: RatingTable, streams: Streams) -> None:
            stack = data.draw(stacks(table, width=4, streams=streams))
            assert_lossless(algorithm=mine, stack=stack, ratings=table, streams=streams, rounds=3)
    """
    codec = draw(codecs(table.n_clients))
    cloak = draw(_cloak(draw(st.sampled_from(cloaks)), table.n_items, streams))
    eta = draw(st.integers(1, table.n_clients // 2))
    collector = Denoisers(
        DenoisersConfig(count=eta),
        n_clients=table.n_clients,
        n_items=table.n_items,
        width=width,
        codec=codec,
        streams=streams,
    )
    stack = Stack(codec=codec, cloak=cloak, collector=collector, n_clients=table.n_clients)
    note({"codec": codec, **stack.describe()})
    return stack


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
        biases: whether items have one; None means not. With them a row has a value more than the
            rank, and there is no Langevin noise.

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
        temperature=st.just(0.0) if temperatures is None else temperatures,
        biases=st.just(False) if biases is None else biases,
        bias_shrinkage=st.sampled_from((0.0, 1.0, 4.0)),
        slope_shrinkage=st.sampled_from((0.5, 5.0)),
    )


def latent_vectors(rows: int, width: int, *, limit: float = 1.0) -> st.SearchStrategy[FloatArray]:
    """Tables float64[rows, width] with entries up to ``limit``: zeros of both signs, tiny, equal.

    Example::

        @given(items=latent_vectors(rows=12, width=2))
        def test_from_any_state(items: FloatArray) -> None:
            assert_lossless(algorithm=lambda: Started(mine(), public=items), ...)
    """
    entries = st.sampled_from((0.0, -0.0, limit, -limit, 5e-324)) | st.floats(-limit, limit)
    size = rows * width
    return st.lists(entries, min_size=size, max_size=size).map(
        lambda values: np.array(values, dtype=np.float64).reshape(rows, width)
    )


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
    makers: dict[str, Callable[..., Fault]] = {
        "drop": Drop,
        "repeat": Repeat,
        "delay": Delay,
        "alter": Alter,
    }

    def make(kind: str, step: Step, round_: int, place: int) -> Fault:
        strike = Strike(round=round_, place=place, with_rows=kind == "alter")
        return makers[kind](step=step, chooser=strike)

    rounds, places = st.integers(1, max_round), st.integers(0, 7)
    return st.builds(make, st.sampled_from(kinds), st.sampled_from(steps), rounds, places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Federation:
    """All arguments of ``assert_lossless`` but the algorithm."""

    ratings: RatingTable
    streams: Streams
    stack: Stack
    rounds: int
    cohort: CohortConfig

    def arguments(self, **changes: Any) -> dict[str, Any]:
        """Keyword arguments for ``assert_lossless``, ``compare_runs`` and ``wire_trace``."""
        return {part.name: getattr(self, part.name) for part in fields(self)} | changes


@st.composite
def federations(
    draw: st.DrawFn,
    *,
    width: int,
    cloaks: tuple[str, ...] = CLOAKS[:2],
    max_clients: int = 8,
    max_items: int = 12,
    max_rounds: int = 6,
) -> Federation:
    """A whole federation: ratings, seed, stack, cohort and number of rounds.

    Args:
        draw: given by Hypothesis.
        width: values per row that the algorithm uploads.
        cloaks: see ``stacks``.
        max_clients: most clients, at least 2.
        max_items: most items.
        max_rounds: most rounds.

    Example: see the module docstring.
    """
    ratings = draw(rating_tables(max_clients=max_clients, max_items=max_items))
    run_streams = draw(streams())
    return Federation(
        ratings=ratings,
        streams=run_streams,
        stack=draw(stacks(ratings, width=width, streams=run_streams, cloaks=cloaks)),
        rounds=draw(st.integers(1, max_rounds)),
        cohort=draw(cohorts(ratings.n_clients)),
    )


def _rated_sets(n_items: int) -> st.SearchStrategy[list[bool]]:
    def bits(number: int) -> list[bool]:
        return [bool(number >> item & 1) for item in range(n_items)]

    every = 2**n_items - 1
    one = st.integers(0, n_items - 1).map(lambda item: 1 << item)
    corners = st.sampled_from((0, every)) | one | one.map(lambda item: every ^ item)
    return (corners | st.integers(0, every)).map(bits)


def _cloak(name: str, n_items: int, streams: Streams) -> st.SearchStrategy[Cloak | None]:
    if name == "virtual-ratings":
        return virtual_ratings(n_items=n_items, streams=streams)
    if name == "randomized-response":
        return randomized_responses(n_items=n_items, streams=streams)
    if name == "none":
        return st.none()
    raise ConfigError("cloaks", name, "unknown cloak", CLOAKS)


def _by_client(
    n_clients: int, clients: list[int], items: Any, stars: list[float]
) -> dict[int, dict[int, float]]:
    found: dict[int, dict[int, float]] = {client: {} for client in range(n_clients)}
    for client, item, rating in zip(clients, items.tolist(), stars, strict=True):
        found[client][item] = rating
    return found
