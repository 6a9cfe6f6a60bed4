"""Fed3CR as a plug-in: consensus enhancement over a method that scores rows of an item table.

The method below works on other rows than without the plug-in. Where it reads the item table, it is
given the fused one, Z = G W_n + P_n; a method with a personal table of its own is given C = G W_n
for the common one and P_n for its own. It takes its usual step on them, and the change divided by
the step size is used as the gradient:

    pull on Z = (Z - Z') / rate    so on P_n; W_n^T of it on G; and G^T pull on W_n, so on phi

and the gradients of the consistency and complementarity of G W_n and P_n are added
(``fed3cr_consensus``). Uploads are the changes of G, all rows, and of phi beside what the method
below shares.

What phi tells: the change of its first layer's weights, divided by that of the layer's biases, is
the input [g; p]. So an adversary that reads a single client's upload reads p, the mean of a
personal table that never leaves the client. Sums over many clients hide it; removing names does
not.
"""

from itertools import pairwise
from threading import local
from typing import Annotated, Any

import numpy as np

from secure_fedrec.algorithms.item_tables.fed3cr_consensus import Work, work_for
from secure_fedrec.algorithms.item_tables.fed3cr_generator import (
    ADAPTIVE,
    SCALES,
    TRANSFERS,
    UNIFIED,
    generator_sizes,
    generator_start,
    n_parameters,
)
from secure_fedrec.algorithms.item_tables.fed3cr_step import (
    Form,
    Part,
    Rates,
    displace,
    enhance,
    fuse,
    settle,
)
from secure_fedrec.algorithms.item_tables.local import Batch, Models, SingleArray, StepSize
from secure_fedrec.algorithms.item_tables.method import (
    PERSONAL,
    ItemTableMethod,
    MethodConfig,
    Start,
    as_told,
    placed,
)
from secure_fedrec.algorithms.item_tables.starts import normal
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.settings import Count, NonNegative, OneOf, Positive, Settings
from secure_fedrec.streams import Streams


class Enhancement(Settings, section="enhancement"):
    """What the plug-in adds; each of the paper's three parts can be left out.

    Args:
        adaptive: whether phi makes a transfer matrix (ACE); otherwise the consensus is used
            unchanged.
        consistency: alpha, weight of L_con; 0 leaves it out.
        complementarity: beta, weight of L_com; 0 leaves it out.
        layers: layers of phi.
        factor: the paper's length scale coefficient.
        scale: what it scales: the "width" of phi's hidden layers, in d, or the transfer "matrix".
        generator_rate: step size of phi.
        generator_scale: factor on the initial values of phi's parameters, except for the identity.
        personal_scale: factor on the start of the personal table, N(0, 1) before, over a method
            that has none of its own.
        item_rate: step size of both item tables for the plug-in's gradients, and the unit of those
            of the method below. By default the ``item_learning_rate`` of its settings.
        weight_decay: pull of all rows of both tables to 0.
        transfer: what replaces ACE (Table IV): "adaptive" keeps ACE; one matrix W for all clients,
            learnt like the consensus, which maps the "consensus" alone, C = G W; or, "unified",
            both tables, Z = (G + P_n) W, without the two losses. Matrices start as the identity.

    Raises:
        ConfigError: a field is out of range, or two do not agree.
    """

    adaptive: bool = True
    consistency: NonNegative = 0.1
    complementarity: NonNegative = 0.1
    layers: Count = 3
    factor: Count = 10
    scale: Annotated[str, OneOf(SCALES)] = "width"
    generator_rate: StepSize = 0.5
    generator_scale: Positive = 1.0
    personal_scale: Positive = 1.0
    item_rate: StepSize | None = None
    weight_decay: NonNegative = 0.0
    transfer: Annotated[str, OneOf(TRANSFERS)] = ADAPTIVE

    def _agree(self) -> None:
        if self.transfer != ADAPTIVE and not self.adaptive:
            raise self.refusal("transfer", "has no effect without adaptive = true")
        if self.unified and (self.consistency or self.complementarity):
            problem = (
                "maps both tables, and has neither consistency nor complementarity: set both to 0"
            )
            raise self.refusal("transfer", problem)

    @property
    def unified(self) -> bool:
        """Whether both tables are mapped."""
        return self.transfer == UNIFIED

    @property
    def reads(self) -> bool:
        """Whether the matrix is a function of a client's prototypes."""
        return self.transfer == ADAPTIVE


_LATER = ("transfer", "generator_scale", "personal_scale")
PLUG_IN = "fed3cr-over-"
"""Prefix of a method's name for that method with the plug-in."""

_FIRST = np.zeros(1, dtype=np.int64)
_EMPTY = np.empty(0, dtype=np.float32)


class Enhanced:
    """A method with the plug-in; see the module docstring. phi follows its shared parameters.

    Args:
        below: the method.
        config: settings of the plug-in.

    Raises:
        ConfigError: what is below has no item table, is enhanced already, has a server that mixes
            single tables, tells no step size of its table (``item_learning_rate``) where none is
            set, or takes no unified transfer.
    """

    form = "change"
    dense = True
    personal = True
    unifies = False

    def __init__(self, below: ItemTableMethod, config: Enhancement) -> None:
        name = getattr(below, "name", type(below).__name__)
        if not isinstance(below, ItemTableMethod):
            raise ConfigError(
                "algorithm.enhancement", name, "does not have an item table to enhance"
            )
        if isinstance(below, Enhanced):
            raise ConfigError("algorithm.enhancement", name, "is enhanced already")
        if hasattr(below, "mix"):
            problem = "has a server that mixes single clients' tables, which are not consensus"
            raise ConfigError("algorithm.enhancement", name, problem)
        if config.unified and not self.unifies:
            problem = "maps both tables, which only the method fed3cr supports"
            raise ConfigError("enhancement.transfer", config.transfer, problem)
        rate = config.item_rate or getattr(below.config, "item_learning_rate", None)
        if rate is None:
            problem = f"must be set: {name} does not state the step size of its item table"
            raise ConfigError("enhancement.item_rate", None, problem)
        self.below, self.enhancement = below, config
        self.name = f"{PLUG_IN}{name}"
        sizes = generator_sizes(
            below.config.rank,
            layers=config.layers,
            factor=config.factor,
            scale=config.scale,
            reads=config.reads,
        )
        self._form = Form(
            sizes=sizes,
            scale=np.float32(config.factor if config.scale == "matrix" else 1),
            alpha=np.float32(config.consistency),
            beta=np.float32(config.complementarity),
        )
        self._rate, self._decay = np.float32(rate), np.float32(config.weight_decay)
        self._generator_rate = np.float32(config.generator_rate)
        self._generator: int = n_parameters(sizes) if config.adaptive else 0
        self._scratch = local()

    @property
    def config(self) -> MethodConfig:
        """Of the method below."""
        return self.below.config

    @property
    def n_items(self) -> int:
        """Of the method below."""
        return self.below.n_items

    def start(self, streams: Streams) -> Start:
        """As below, and phi, whose transfer matrices are near the identity."""
        start = self.below.start(streams)
        if not self._generator:
            return start
        phi = generator_start(
            self._form.sizes,
            float(self._form.scale),
            streams.stream("fed3cr-generator"),
            spread=self.enhancement.generator_scale,
        )
        return Start(start.table, np.concatenate([start.shared, phi]))

    def own(self, clients: IntArray, streams: Streams) -> SingleArray:
        """As below."""
        return self.below.own(clients, streams)

    def personal_start(self, streams: Streams) -> SingleArray:
        """As below, or N(0, 1) where there is no personal table."""
        if self.below.personal:
            return self.below.personal_start(streams)
        table = normal(streams.stream("fed3cr-personal"), (self.n_items, self.config.rank))
        return (self.enhancement.personal_scale * table).astype(np.float32)

    def step(self, models: Models, batch: Batch, losses: FloatArray) -> None:
        """The step of the method below between the plug-in's two halves, client by client."""
        for place, client in enumerate(batch.clients.tolist()):
            losses[client] = self._step(models, client, batch, place)

    def scores(self, models: Models, table: SingleArray) -> SingleArray:
        """Scores below, of the fused rows."""
        scores = np.empty((len(models.own), len(table)), dtype=np.float32)
        form = self._form._replace(alpha=np.float32(0), beta=np.float32(0))
        work = self._of_thread()
        for client in range(len(scores)):
            part = self._part(models, client)
            common = enhance(part, form, _EMPTY, work)
            count = fuse(common, part.own, part.positives[:0], True, self.below.personal, work)
            view = self._view(models, client, part, count, work)
            scores[client] = self.below.scores(view, table)[0]
        return scores

    def consensus(self, models: Models, client: int) -> SingleArray:
        """C = G W_n of one client's model as it is: float32[m, d]."""
        form = self._form._replace(alpha=np.float32(0), beta=np.float32(0))
        return enhance(self._part(models, client), form, _EMPTY, self._of_thread()).copy()

    def own_view(self, models: Models, client: int) -> SingleArray:
        """The personal table as it is scored: float32[m, d]."""
        return self._part(models, client).own

    @property
    def generator_size(self) -> int:
        """Number of the last shared parameters, which are phi's."""
        return self._generator

    def knowledge(self) -> dict[str, Any]:
        """All hyper-parameters, of the method below and of the plug-in, and what phi reads."""
        below = self.below.knowledge()
        added = as_told(self.enhancement, _LATER)
        known = {**below, "enhancement": added}
        if not self._generator or not self.enhancement.reads:
            return known
        rank, first = self.config.rank, self._first_of_generator()
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, (inputs, outputs) in enumerate(pairwise(self._form.sizes.tolist())):
            shapes[f"generator.{layer}.weight"] = (outputs, inputs)
            shapes[f"generator.{layer}.bias"] = (outputs,)
        phi = placed(shapes, first=first, by_input=True)
        return {
            **known,
            "federated": [*below.get("federated", ()), *phi],
            "private": placed({"prototype": (rank,)}),
            "weight_position": None,
            "private_input": {
                "layer": "generator.0.weight",
                "first": rank,
                "secret": {"table": PERSONAL, "of_items": True},
            },
        }

    def _first_of_generator(self) -> int:
        """Where phi begins in the shared parameters."""
        return len(self.below.start(Streams.from_seed(0)).shared)

    def _step(self, models: Models, client: int, batch: Batch, place: int) -> float:
        """One client's step; its loss, before it."""
        work, part, decay = self._of_thread(), self._part(models, client), batch.rates[place]
        below, split = self.below, self.below.personal
        common = enhance(part, self._form, _EMPTY, work)
        examples = slice(int(batch.begin[place]), int(batch.end[place]))
        rows = batch.rows[examples] - models.indptr[client]
        count = fuse(common, part.own, rows, below.dense, split, work)
        loss = np.zeros(1)
        seen = Batch(
            clients=_FIRST,
            begin=_FIRST,
            end=np.array([len(rows)]),
            rows=work.places[: len(rows)],
            labels=batch.labels[examples],
            rates=batch.rates[place : place + 1],
        )
        below.step(self._view(models, client, part, count, work), seen, loss)
        rates = Rates(decay * self._rate, self._decay, decay * self._generator_rate)
        displace(common, part.own, count, split, rates.tables, work)
        return float(loss[0]) + settle(part, self._form, rates, work)

    def _part(self, models: Models, client: int) -> Part:
        rows = slice(models.indptr[client], models.indptr[client + 1])
        first, last = models.positives_indptr[client : client + 2]
        return Part(
            table=models.table[rows],
            own=models.personal[rows],
            positives=models.positives[first:last] - models.indptr[client],
            phi=models.shared[client, self._shared(models) :],
        )

    def _shared(self, models: Models) -> int:
        """How many shared parameters are those of the method below."""
        return int(models.shared.shape[1]) - self._generator

    def _view(self, models: Models, client: int, part: Part, count: int, work: Work) -> Models:
        """The method below's view of a single client's model."""
        positives = work.slots[part.positives]
        positives = positives[positives >= 0]
        return Models(
            indptr=np.array([0, count]),
            items=work.items[:count],
            table=work.seen[0, :count],
            personal=work.seen[1, : count if self.below.personal else 0],
            positives_indptr=np.array([0, len(positives)]),
            positives=positives,
            shared=models.shared[client : client + 1, : self._shared(models)],
            own=models.own[client : client + 1],
        )

    def _of_thread(self) -> Work:
        if not hasattr(self._scratch, "work"):
            config = self.config
            self._scratch.work = work_for(
                self.n_items, config.rank, config.local.batch_size, self._form.sizes
            )
        work: Work = self._scratch.work
        return work
