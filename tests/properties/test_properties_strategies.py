"""The strategies reach the corners they promise, and the package does not need Hypothesis."""

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from hypothesis import strategies as st

from secure_fedrec.data import RatingTable, SyntheticConfig, generate
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties.strategies import (
    SCALES,
    codecs,
    cohorts,
    faults,
    latent_vectors,
    pmf_configs,
    rating_tables,
    stacks,
    streams,
)
from secure_fedrec.protection import Denoisers, RandomizedResponse, Stack, VirtualRatings
from secure_fedrec.streams import Streams

PROFILE = settings(
    settings.get_profile("properties"),
    max_examples=1000,
    database=None,
    phases=[Phase.generate],  # reaching a corner is enough; nobody reads the smallest one
    suppress_health_check=list(HealthCheck),
)


EIGHT_OF_TEN = generate(SyntheticConfig(clients=8, items=10, mean_ratings=5, seed=1))

TABLES: dict[str, Callable[[RatingTable], Any]] = {
    "no rating at all": lambda table: len(table) == 0,
    "a client without ratings": lambda table: 0 in table.counts() and len(table),
    "a client with one rating": lambda table: 1 in table.counts() and table.n_items > 2,
    "all items but one": lambda table: table.n_items - 1 in table.counts() and table.n_items > 3,
    "all items": lambda table: table.n_items in table.counts() and table.n_items > 2,
    "an item nobody rated": lambda table: 0 in table.item_popularity() and len(table),
    "an item everybody rated": lambda table: table.n_clients in table.item_popularity(),
    "one item": lambda table: table.n_items == 1 and len(table),
    "the largest size": lambda table: (table.n_clients, table.n_items) == (8, 12),
    "half stars": lambda table: table.scale == SCALES[1] and np.any(table.ratings % 1),
    "whole stars": lambda table: table.scale == SCALES[0] and len(table),
}


@pytest.mark.parametrize("corner", list(TABLES))
def test_rating_tables_reach(corner: str) -> None:
    find(rating_tables(), lambda table: bool(TABLES[corner](table)), settings=PROFILE)


def cloak_of(stack: Stack) -> Any:
    assert isinstance(stack.cloak, VirtualRatings | RandomizedResponse)
    return stack.cloak.config


def eta(stack: Stack) -> int:
    assert isinstance(stack.collector, Denoisers)
    return stack.collector.config.count


STACKS: dict[str, Callable[[Stack], Any]] = {
    "rho 0": lambda stack: getattr(cloak_of(stack), "rho", None) == 0,
    "fractional rho": lambda stack: getattr(cloak_of(stack), "rho", 0) % 1 > 0,
    "everybody capped": lambda stack: len(stack.capped(np.full(8, 3))) == 8,
    "sticky": lambda stack: getattr(cloak_of(stack), "sticky", False),
    "predictions at once": lambda stack: getattr(cloak_of(stack), "filling", "") == "predicted",
    "FedRec++": lambda stack: isinstance(stack.cloak, VirtualRatings),
    "SDCF": lambda stack: isinstance(stack.cloak, RandomizedResponse),
    "dropped reports": lambda stack: getattr(cloak_of(stack), "report_one", 1) < 1,
    "one denoiser": lambda stack: eta(stack) == 1,
    "n / 2 denoisers": lambda stack: eta(stack) == 4,
    "32 bits": lambda stack: stack.codec.bits == 32,
    "64 bits": lambda stack: stack.codec.bits == 64,
    "odd width": lambda stack: stack.codec.bits not in (32, 64),
}


@pytest.mark.parametrize("corner", list(STACKS))
def test_stacks_reach(corner: str) -> None:
    drawn = stacks(EIGHT_OF_TEN, width=2, streams=Streams.from_seed(1))
    find(drawn, lambda stack: bool(STACKS[corner](stack)), settings=PROFILE)


def test_an_unknown_cloak_is_refused() -> None:
    seed = Streams.from_seed(1)
    unknown = stacks(EIGHT_OF_TEN, width=1, streams=seed, cloaks=("masks",))
    with pytest.raises(ConfigError, match=r"masks.*virtual-ratings, randomized-response"):
        find(unknown, lambda _: True, settings=PROFILE)


@given(codec=codecs(8))
@settings(PROFILE, max_examples=200)
def test_codecs_hold_the_sum_of_every_client(codec: FixedPoint) -> None:
    codec.require_budget(8)
    top = int(codec.to_integers(codec.encode(np.full(8, codec.clip)).sum(keepdims=True))[0])
    assert top == 8 * codec.largest


@pytest.mark.parametrize("n_clients", [2, 3, 5, 8, 17])
def test_codecs_reach_a_budget_without_a_digit_to_spare(n_clients: int) -> None:
    def tight(codec: FixedPoint) -> bool:
        return codec.bits == 32 and codec.max_terms < 2 * n_clients

    find(codecs(n_clients), tight, settings=PROFILE)


@pytest.mark.parametrize("size", [None, 1, 5])
def test_cohorts_invite_everybody_one_or_all(size: int | None) -> None:
    find(cohorts(5), lambda cohort: cohort.clients_per_round == size, settings=PROFILE)


@given(
    config=pmf_configs(temperatures=st.floats(0.001, 0.1)),
    streams=streams(),
    table=latent_vectors(3, 2, limit=0.5),
)
@settings(PROFILE, max_examples=50)
def test_drawn_settings_are_in_range(
    config: Any, streams: Streams, table: np.ndarray[Any, np.dtype[np.float64]]
) -> None:
    assert 1 <= config.rank <= 3
    assert 1 <= config.rounds <= 6
    assert config.temperature > 0
    assert streams.stream("fakes").generator().integers(9) < 9
    assert table.shape == (3, 2)
    assert np.all(np.abs(table) <= 0.5)


@pytest.mark.parametrize("kind", ["Drop", "Repeat", "Delay", "Alter"])
def test_faults_of_every_kind_are_drawn(kind: str) -> None:
    fault = find(faults(max_round=2), lambda f: type(f).__name__ == kind, settings=PROFILE)
    assert "hits=0" in repr(fault), "the chooser must come unused and readable"


def run_without_hypothesis(code: str) -> "subprocess.CompletedProcess[str]":
    blocked = f"import sys; sys.modules['hypothesis'] = None; {code}"
    return subprocess.run(  # noqa: S603
        [sys.executable, "-c", blocked], capture_output=True, text=True, check=False
    )


def test_only_the_strategies_need_hypothesis() -> None:
    assert run_without_hypothesis("import secure_fedrec.properties").returncode == 0
    refused = run_without_hypothesis("import secure_fedrec.properties.strategies")
    assert refused.returncode == 1
    assert "MissingExtraError: hypothesis" in refused.stderr
    assert "pip install 'secure-fedrec[properties]'" in refused.stderr
