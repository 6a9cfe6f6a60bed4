"""Hypothesis strategies for the layers of a stack; ``strategies`` exports them.

Import that module by name; both need Hypothesis.
"""

from typing import Any

import numpy as np
from hypothesis import strategies as st

from secure_fedrec.data import RatingTable
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties.strategies.code import Named
from secure_fedrec.properties.strategies.federation import MakesCollector, Ratings, stack_of
from secure_fedrec.properties.strategies.imports import parts, tell, telling
from secure_fedrec.protection import (
    Cloak,
    DenoisersConfig,
    RandomizedResponse,
    RandomizedResponseConfig,
    Stack,
    VirtualRatings,
    VirtualRatingsConfig,
)
from secure_fedrec.protection.cloaks.virtual_ratings import DRAWS, FILLINGS
from secure_fedrec.streams import Streams

CLOAKS = ("virtual-ratings", "randomized-response", "none")
"""Under denoisers: FedRec++, SDCF with denoisers, FedRec++ at rho = 0."""

_CLIP = 256.0


@st.composite
@telling
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
    digits = draw(st.just(most) | st.integers(min(most, 10), most))
    return FixedPoint(bits=bits, fraction_bits=digits, clip=_CLIP)


@st.composite
@telling
def virtual_ratings(
    draw: st.DrawFn, *, n_items: int, streams: Streams, least: float = 0.0
) -> VirtualRatings:
    """FedRec's cloak: rho is 0, fractional, or so large that every client is capped; any draw.

    Args:
        draw: given by Hypothesis.
        n_items: rows of the shared table.
        streams: the run's random streams.
        least: smallest rho, at most 1.

    Example: see ``stacks``, which draws from it.
    """
    # The first is what examples shrink to: a virtual row for every rating. Those that ``least``
    # leaves out come last, so that without it the others are drawn by the same choices.
    some = [rho for rho in (1.0, 0.5, 2.5, 3.0, float(n_items), 0.3, 0.0) if rho >= least]
    rhos = st.sampled_from(some) | st.floats(least, 4)
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
@telling
def randomized_responses(
    draw: st.DrawFn, *, n_items: int, streams: Streams, least: float = 0.0
) -> RandomizedResponse:
    """SDCF's cloak: from truthful reports to pure noise, with rated items dropped or not.

    Args:
        draw: given by Hypothesis.
        n_items: rows of the shared table.
        streams: the run's random streams.
        least: smallest probability of a virtual row, below 0.49.

    Example: see ``stacks``, which draws from it.
    """
    config = RandomizedResponseConfig(
        permanent=draw(st.sampled_from((0.0, 0.1, 1.0)) | st.floats(0, 1)),
        report_one=draw(st.just(1.0) | st.floats(0.5, 1)),
        report_zero=draw(st.just(least) | st.floats(least, 0.49)),
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
    telling: bool = False,
    collector: MakesCollector | None = None,
) -> Stack:
    """Stacks that claim to be lossless: a cloak, a ring, and 1 to n / 2 denoisers.

    They print as the ``stack_of`` that makes them.

    Args:
        draw: given by Hypothesis.
        table: training ratings; two clients or more.
        width: values per uploaded row.
        streams: the run's random streams.
        cloaks: drawn from these names of ``CLOAKS``.
        telling: draw only cloaks that add virtual rows as a rule, where ``cloaks`` names any.
        collector: makes another collector than denoisers, from its sizes.

    Raises:
        ConfigError: an unknown cloak.

    Example::

        @given(data=st.data(), table=rating_tables(), streams=streams())
        def test_my_recommender(data: st.DataObject, table: RatingTable, streams: Streams) -> None:
            stack = data.draw(stacks(table, width=4, streams=streams))
            assert_lossless(algorithm=mine, stack=stack, ratings=table, streams=streams, rounds=3)
    """
    with parts():
        made_of = draw(
            stack_arguments(
                table,
                width=width,
                streams=streams,
                cloaks=cloaks,
                telling=telling,
                collector=collector,
            )
        )
    tell(stack_of, *made_of.values())
    if not isinstance(made_of["collector"], DenoisersConfig):
        made_of["collector"] = Named(made_of["collector"])
    return draw(st.builds(stack_of, **{name: st.just(value) for name, value in made_of.items()}))


@st.composite
def stack_arguments(
    draw: st.DrawFn,
    table: RatingTable,
    *,
    width: int,
    streams: Streams,
    cloaks: tuple[str, ...],
    telling: bool,
    collector: MakesCollector | None,
) -> dict[str, Any]:
    """Arguments of ``stack_of``, drawn by those of ``stacks``."""
    codec = draw(codecs(table.n_clients))
    named = [name for name in cloaks if name != "none"] if telling else []
    cloak = draw(_cloak(draw(st.sampled_from(named or cloaks)), table.n_items, streams, telling))
    by = collector or DenoisersConfig(count=draw(st.integers(1, table.n_clients // 2)))
    return {
        "ratings": Ratings.of(table),
        "width": width,
        "streams": streams,
        "codec": codec,
        "cloak": getattr(cloak, "config", None),
        "collector": by,
    }


def _cloak(
    name: str, n_items: int, streams: Streams, telling: bool
) -> st.SearchStrategy[Cloak | None]:
    if name == "virtual-ratings":
        rho = 0.5 if telling else 0.0
        return virtual_ratings(n_items=n_items, streams=streams, least=rho)
    if name == "randomized-response":
        share = 0.4 if telling else 0.0
        return randomized_responses(n_items=n_items, streams=streams, least=share)
    if name == "none":
        return st.none()
    raise ConfigError("cloaks", name, "unknown cloak", CLOAKS)
