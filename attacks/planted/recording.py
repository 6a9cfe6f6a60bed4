"""Planted federations' runs, built, trained and recorded to the last round, and their secrets."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from attacks.base import Planted
from attacks.suite import SUITE
from secure_fedrec.algorithms.base import Algorithm, PublicState
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.engines import Problem, RecordedRun, sizes_of
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import Stack, build_stack
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.vault import Vault
from secure_fedrec.wire import RecordingPolicy


class PlantedSum:
    """A planted algorithm whose public table is the last round's sum; of zeros before round 1."""

    width = 1

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """A table of zeros."""
        return PublicState(round=0, table=np.zeros((n_rows, self.width)))

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """No private tables."""

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """The sum."""
        return PublicState(round=public.round + 1, table=aggregate.values)

    def upload_vectors(self, vault: Vault) -> Mapping[str, IntArray]:
        """None."""
        return {}


def protected(
    algorithm: Algorithm,
    problem: Problem,
    streams: Streams,
    layers: Mapping[str, Any],
    *,
    bag_layers: Mapping[str, Any] | None = None,
    bags: Mapping[str, BagShape] | None = None,
) -> Stack:
    """The stack of some layers for a federation; settings by layer name."""
    sizes, codec = sizes_of(algorithm, problem, bags=bags), FixedPoint()
    return build_stack(layers, sizes=sizes, codec=codec, streams=streams, bag_layers=bag_layers)


def planted_secrets(planted: Planted, *on: str) -> dict[str, npt.NDArray[Any]]:
    """The secrets that attacks with a control on these federations claim."""
    controls = (attack.control for attack in SUITE.values() if attack.control.on in on)
    return {key: told(planted) for each in controls for key, told in each.secrets.items()}


def recorded(
    algorithm: Algorithm,
    problem: Problem,
    stack: Stack,
    streams: Streams,
    payload_rounds: tuple[int, ...],
    *,
    cohort: CohortConfig | None = None,
) -> RecordedRun:
    """All rounds of a federation, payloads of some of them kept."""
    run = RecordedRun(
        algorithm=algorithm,
        stack=stack,
        problem=problem,
        streams=streams,
        policy=RecordingPolicy(payload_rounds=payload_rounds),
        cohort=cohort,
    )
    for _ in range(algorithm.rounds):
        run.run_round()
    return run
