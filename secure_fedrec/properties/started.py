"""Starts any algorithm from given states, so that properties can be tested from all states."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from secure_fedrec.algorithms.base import (
    NormalisesRatings,
    PublicState,
    RatingAlgorithm,
    RatingStep,
)
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import Aggregate
from secure_fedrec.vault import Vault


class Started:
    """An algorithm whose first round starts from given tables instead of its own initialisation.

    Args:
        algorithm: does the work.
        public: float64[m, d], the public table before round 1; None keeps the algorithm's.
        private: private tables before round 1, by name; the others keep their initialisation.
    """

    def __init__(
        self,
        algorithm: RatingAlgorithm,
        *,
        public: FloatArray | None = None,
        private: Mapping[str, FloatArray] | None = None,
    ) -> None:
        self._algorithm = algorithm
        self._public = public
        self._private = {} if private is None else dict(private)

    @property
    def normalises_ratings(self) -> bool:
        """The algorithm's."""
        own = self._algorithm
        return isinstance(own, NormalisesRatings) and own.normalises_ratings

    @property
    def width(self) -> int:
        """Values per uploaded row."""
        return self._algorithm.width

    @property
    def rounds(self) -> int:
        """Rounds of a full training run."""
        return self._algorithm.rounds

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """The given table, or the algorithm's own.

        Raises:
            ConfigError: the given table has another shape.
        """
        state = self._algorithm.initial_public(n_rows, streams)
        if self._public is None:
            return state
        _require_shape("start.public", self._public, state.table)
        return replace(state, table=self._public.copy())

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Create the private tables, then overwrite the given ones.

        Raises:
            ConfigError: a given table has an unknown name or another shape.
        """
        self._algorithm.initialise(vault, streams)
        everybody = np.arange(vault.n_clients)
        for name, values in self._private.items():
            if name not in vault.names():
                raise ConfigError("start.private", name, "unknown private table", vault.names())
            _require_shape(f"start.private.{name}", values, vault.read(name, everybody))
            vault.write(name, everybody, values)

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> RatingStep:
        """The algorithm's."""
        return self._algorithm.client_step(clients, public, vault, streams)

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """The algorithm's."""
        return self._algorithm.server_step(public, aggregate)

    def predict(
        self, public: PublicState, vault: Vault, clients: IntArray, items: IndexArray
    ) -> FloatArray:
        """The algorithm's."""
        return self._algorithm.predict(public, vault, clients, items)

    def public_knowledge(self) -> dict[str, Any]:
        """The algorithm's."""
        return self._algorithm.public_knowledge()


def _require_shape(key: str, given: FloatArray, own: FloatArray) -> None:
    if given.shape != own.shape:
        raise ConfigError(key, given.shape, f"must have shape {own.shape}")
