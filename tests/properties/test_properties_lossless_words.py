"""What a comparison says of parts that do not fit, and of rows called what they are not."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.errors import ConfigError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.local import LocalModel
from secure_fedrec.properties import Comparison, compare_runs
from secure_fedrec.properties.lossless.differences import different_integers, different_parts
from secure_fedrec.protection import (
    RECORDS,
    Cloaked,
    Denoisers,
    DenoisersConfig,
    Sizes,
    Stack,
    build_stack,
)
from secure_fedrec.streams import Streams

CLIENTS, ITEMS, RANK = 12, 20, 2
CODEC, STREAMS = FixedPoint(), Streams.from_seed(1)
TABLE = generate(SyntheticConfig(clients=CLIENTS, items=ITEMS, mean_ratings=6, seed=1))


def pmf() -> PMF:
    return PMF(PMFConfig.printed(rank=RANK, init_scale=0.1))


def stack_of(**sizes: int) -> Stack:
    fitting = {"n_clients": CLIENTS, "n_items": ITEMS, "width": RANK} | sizes
    collector = Denoisers(DenoisersConfig(count=3), **fitting, codec=CODEC, streams=STREAMS)
    return Stack(codec=CODEC, cloak=None, collector=collector, n_clients=fitting["n_clients"])


def compared(stack: Stack) -> Comparison:
    return compare_runs(algorithm=pmf, stack=stack, ratings=TABLE, streams=STREAMS, rounds=1)


@pytest.mark.parametrize(
    ("sizes", "error", "words"),
    [
        ({"n_items": 10}, WireError, "row number lies outside 0 to 9"),
        ({"n_items": 30}, ConfigError, r"\(30, 2\): a sum here has \(20, 2\)"),
        ({"width": 1}, WireError, "does not fit"),
        ({"width": 3}, WireError, "does not fit"),
        ({"n_clients": 9}, ConfigError, "n_clients = 9: the data have 12"),
        ({"n_clients": 15}, ConfigError, "n_clients = 15: the data have 12"),
    ],
)
def test_sizes_that_do_not_fit_are_named(
    sizes: Mapping[str, int], error: type[Exception], words: str
) -> None:
    assert compared(stack_of()).holds
    with pytest.raises(error, match=words):
        compared(stack_of(**sizes))


def test_clients_may_keep_the_state_from_the_server() -> None:
    sizes = Sizes(n_clients=CLIENTS, n_items=ITEMS, width=RANK, cohort=CLIENTS)
    layers = {"paillier": RECORDS["paillier"].settings(holder="clients")}
    assert compared(build_stack(layers, sizes=sizes, codec=CODEC, streams=STREAMS)).holds


class CallsVirtual:
    """A cloak that calls the first row of every client virtual that is not exempt."""

    def cover(self, local: LocalModel, *, round_: int, exempt: BoolArray) -> Cloaked:
        virtual = np.zeros(len(local.upload.block.rows), dtype=bool)
        virtual[local.upload.block.indptr[:-1][~exempt]] = True
        return Cloaked(upload=local.upload, virtual=virtual)

    def expected_rows(self, rated: IntArray) -> tuple[IntArray, IntArray]:
        return rated, np.ones_like(rated)

    def capped(self, rated: IntArray) -> IntArray:
        return np.empty(0, dtype=np.int64)

    def describe(self) -> tuple[str, dict[str, Any]]:
        return "calls-virtual", {}


def test_a_real_row_that_is_called_virtual_is_named_so() -> None:
    outcome = compared(replace(stack_of(), cloak=CallsVirtual()))
    assert outcome.blames == "the stack"
    assert outcome.first_difference is not None
    assert outcome.first_difference.endswith("is marked as virtual, but is in the plain upload")


def test_fractions_and_missing_names_are_said() -> None:
    whole, half = np.ones(3, dtype=np.int64), np.array([1.0, 1.0, 1.5])
    found = different_integers("count of item", half, whole)
    assert found == "count of item 2: 1.5, which is not an integer"
    assert different_parts("public {}, row", {"a": half}, {}) == "public: ['a'] instead of []"
    assert different_parts("{}, row", {}, {"a": half}) == "private tables: [] instead of ['a']"
