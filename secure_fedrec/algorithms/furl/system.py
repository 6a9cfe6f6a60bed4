"""FURL: Federated Averaging over federated parameters, while private ones stay home.

The parameters of a model are w_f, shared, and w_p^i, one set per client i. In round t a client
downloads w_f and trains it together with its own w_p^i (section 3.5), starting from where its last
training left w_p^i, or from the default the first time:

    u_f, u_p = local training from (w_f, w_p^i)                          at the client
    w_f   <- w_f + sum_i c_i d_i / sum_i c_i,    d_i = u_f,i - w_f       at the server   (eq. 5)
    w_p^i <- u_p,i                                                       at the client   (eq. 7)

with c_i the client's number of training examples. Clients that sit a round out keep w_p^i.

Weights travel inside the sum: a client uploads c_i d_i and c_i itself as one more value, so the
server learns only sum c_i d_i and sum c_i, if uploads are protected. The ring must hold c_i d_i:
``ring.clip`` has to exceed the largest number of examples times the largest change of one
parameter. Its default of 4096 leaves room for 400 examples and changes of 10; beyond, the encoding
is refused with an ``EncodingError`` that names the setting.

Federated Averaging of *all* parameters would scale the private step by z_i = c_i / sum c (eq. 6):

    w_p^i <- w_p^i + c_i (u_p,i - w_p^i) / sum_j c_j                     private_rule = "weighted"

A client learns sum c only after the round, when the server broadcasts it. So it keeps its step and
completes it when it takes part again, or is asked for its model. The paper sets z_i = 1.

Everything a client computes runs on library kernels, whose results depend on the shape of a batch;
clients are therefore trained one at a time, and a batch of clients gives the bits of each alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from torch import nn

from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.algorithms.furl.settings import FURLConfig
from secure_fedrec.algorithms.local_training import (
    LocalOptimizer,
    Loss,
    TrainingDraws,
    seeded_torch,
    train_locally,
)
from secure_fedrec.blocks import BlockLayout, BlockShape, flat_blocks
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.split import ParameterSplit
from secure_fedrec.streams import Streams
from secure_fedrec.traits import OTHER_ROWS
from secure_fedrec.uploads import Aggregate, FlatBlock, Upload
from secure_fedrec.vault import Vault

_PARAMETERS = "parameters"
_WEIGHT_SUMS = "weight_sums"
_PRIVATE, _OPTIMIZER, _PENDING = "private_parameters", "optimizer_state", "pending_step"


class FURL:
    """The algorithm; see the module docstring.

    Args:
        build: makes the model of one device. Its initial values, drawn by torch's generator under a
            seed of the run, are the initial w_f and every client's default w_p.
        loss: mean loss of the model on a batch of a client's examples.
        config: hyper-parameters.
        private: patterns of the names of private parameters. None, and only None, makes every
            parameter federated: plain Federated Averaging, the paper's *Global FL*.
        ring: ring of the run; required for the private rule "weighted" and only allowed with it.
            Its step is rounded in the ring as a sum would be, so that it has the bits of Federated
            Averaging of all parameters.

    Raises:
        ConfigError: the patterns leave no private or no federated parameter, or match nothing; the
            model cannot be split (see ``ParameterSplit``); or ``ring`` is missing or out of place.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        loss: Loss,
        config: FURLConfig,
        *,
        private: Sequence[str] | None,
        ring: FixedPoint | None = None,
    ) -> None:
        if (ring is None) != (config.private_rule == "keep"):
            raise ConfigError(
                "ring", ring, "is required with private_rule = 'weighted', and only allowed with it"
            )
        self.config = config
        self._build = build
        self._loss = loss
        self._ring = ring
        # Only names and shapes count here: values are drawn under the run's seed.
        with seeded_torch(0):
            self._model = build()
        self.split = ParameterSplit.of(self._model, private=private)
        names = [segment.name for segment in self.split.private]
        self._optimizer = LocalOptimizer(self._model, config.local, private=names)
        self.width = config.row_width
        self.rows = BlockLayout(self.blocks()).rows
        self.rounds = config.rounds

    def blocks(self, n_rows: int = 0) -> tuple[BlockShape, ...]:
        """One flat block: c_i d_i and, behind it, c_i."""
        return flat_blocks({_PARAMETERS: self.split.n_federated + 1}, self.width)

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """The initial w_f: float64[n_federated]."""
        federated, _ = self._initial_values(streams)
        extras = {_WEIGHT_SUMS: np.zeros(1)} if self._ring is not None else {}
        return PublicState(round=0, table=federated, extras=extras)

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Give every client the default w_p, or its own one if clients draw from secrets.

        Raises:
            ConfigError: a client has no training example, so c_i = 0.
        """
        idle = vault.clients[vault.example_counts() == 0]
        if len(idle):
            shown = ", ".join(map(str, idle[:5].tolist())) + (", ..." if len(idle) > 5 else "")
            raise ConfigError(
                "data.clients", shown, f"{len(idle)} clients have no training example; leave out"
            )
        clients = vault.clients.tolist() if streams.keyed else [0]
        defaults = [self._initial_values(streams.of(client))[1] for client in clients]
        vault.create(_PRIVATE, np.tile(defaults, (1 if streams.keyed else vault.n_clients, 1)))
        if self._ring is not None:
            vault.create(_PENDING, np.zeros((vault.n_clients, 1 + self.split.n_private)))
        if self.config.local.keep_state:
            vault.create(_OPTIMIZER, np.zeros((vault.n_clients, self._optimizer.state_size)))

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FinishedStep:
        """Local training of some clients, one after the other."""
        stream, round_ = streams.private("local-training"), public.round + 1
        weights = vault.example_counts(clients)
        private = self.private_values(public, vault, clients)
        kept = self.config.local.keep_state
        moments = vault.read(_OPTIMIZER, clients) if kept else np.zeros((len(clients), 0))
        uploads = np.empty((len(clients), self.split.n_federated + 1))
        steps = np.empty_like(private)
        self.split.write_federated(self._model, self.federated_values(public))
        # w_f in the model's number format, so that a client that learns nothing sends zeros.
        start = self.split.read_federated(self._model)
        for position, client in enumerate(clients.tolist()):
            self.split.write_federated(self._model, start)
            self.split.write_private(self._model, private[position])
            own = self.split.read_private(self._model)
            train_locally(
                self._model,
                self._loss,
                vault.examples(client),
                optimizer=self._optimizer,
                draws=TrainingDraws.at(stream, round_, client),
                state=moments[position] if kept else None,
                rate_scale=self.config.decay**public.round,
            )
            change = self.split.read_federated(self._model) - start
            uploads[position] = np.append(weights[position] * change, weights[position])
            trained = self.split.read_private(self._model)
            steps[position] = trained if self._ring is None else trained - own
            moments[position] = self._optimizer.state() if kept else 0.0
        tables = {_OPTIMIZER: moments} if kept else {}
        if self._ring is None:
            tables[_PRIVATE] = steps  # eq. 7
        else:
            tables[_PRIVATE] = private
            # c_i d_i in the fixed-point format in which the ring holds the sum of the c_i.
            coded = self._ring.decode(self._ring.encode(weights[:, None] * steps))
            started = np.full((len(steps), 1), float(round_))
            tables[_PENDING] = np.concatenate([started, coded], axis=1)

        def commit(vault: Vault) -> None:
            for name, values in tables.items():
                vault.write(name, clients, values)

        blocks = {_PARAMETERS: FlatBlock(values=uploads)}
        upload = Upload(clients=clients, blocks=blocks)
        return FinishedStep(clients=clients, upload=upload, commit=commit)

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """The weighted mean of the changes (eq. 5); without any client w_f stays."""
        sums = aggregate.vector(_PARAMETERS)
        total = float(sums[-1])
        federated = self.federated_values(public)
        if total > 0:
            federated = federated + sums[:-1] / total
        extras = dict(public.extras)
        if self._ring is not None:
            extras[_WEIGHT_SUMS] = np.append(extras[_WEIGHT_SUMS], total)
        return PublicState(round=public.round + 1, table=federated, extras=extras)

    def extra_rows(self, completed: int) -> Mapping[str, int | None]:
        """A sum of weights for each round, and one before the first (``VaryingExtras``)."""
        return {} if self._ring is None else {_WEIGHT_SUMS: 1 + completed}

    def federated_values(self, public: PublicState) -> FloatArray:
        """w_f: float64[n_federated]."""
        return public.table

    def private_values(self, public: PublicState, vault: Vault, clients: IntArray) -> FloatArray:
        """w_p of some clients, with every step completed: float64[B, n_private]."""
        values = vault.read(_PRIVATE, clients)
        if self._ring is None:
            return values
        pending = vault.read(_PENDING, clients)
        rounds = pending[:, 0].astype(np.int64)
        held = rounds > 0
        totals = public.extras[_WEIGHT_SUMS][rounds[held], None]
        values[held] = values[held] + pending[held, 1:] / totals  # eq. 6
        return values

    def local_model(self, public: PublicState, vault: Vault, client: int) -> nn.Module:
        """The client's own model, for inference on the device; valid until the next call."""
        private = self.private_values(public, vault, np.array([client]))[0]
        self.split.write_federated(self._model, self.federated_values(public))
        self.split.write_private(self._model, private)
        return self._model.eval()

    def public_knowledge(self) -> dict[str, Any]:
        """All hyper-parameters, and names and places of the parameters."""
        return {
            "name": "furl",
            **asdict(self.config),
            "federated": [asdict(segment) for segment in self.split.federated],
            "private": [asdict(segment) for segment in self.split.private],
            "weight_position": self.split.n_federated,
            "traits": asdict(OTHER_ROWS),
        }

    def _initial_values(self, streams: Streams) -> tuple[FloatArray, FloatArray]:
        """The initial w_f and the default w_p."""
        words = streams.stream("model-init").words_at(0, np.array([0]), np.array([0]), width=1)
        with seeded_torch(int(words[0, 0])):
            model = self._build()
        return self.split.read_federated(model), self.split.read_private(model)
