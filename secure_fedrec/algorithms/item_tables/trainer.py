"""The item-table family: one trainer, and a method per file.

Server and clients share an item table C (and, in some methods, further parameters); clients keep
the rest of their model. In round t every client u that takes part

1. draws negatives for its training items, anew,
2. copies C and trains its model by steps of gradient descent, epoch after epoch,
3. measures the model as it is now, and keeps its private part,
4. sends the change of its copy, in row i C_u,i - C_i, and likewise that of the further parameters,

and the server adds the mean change: C <- C + sum_u (C_u - C) / participants. Clients weigh the
same, however many items they have; how many there are is one more value of the same sum.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np

from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.algorithms.item_tables import training
from secure_fedrec.algorithms.item_tables.local import Models, SingleArray
from secure_fedrec.algorithms.item_tables.method import OWN, PERSONAL, ItemTableMethod
from secure_fedrec.blocks import TABLE, BlockKind, BlockLayout, BlockShape, flat_blocks
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray, WordArray
from secure_fedrec.core.cores import usable_cores
from secure_fedrec.core.kernels import bounds_of
from secure_fedrec.data.negatives import Examples, Ragged, draw_negatives
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.streams import Streams
from secure_fedrec.traits import RowTraits
from secure_fedrec.uploads import Aggregate, FlatBlock, RowBlock, Upload
from secure_fedrec.vault import Vault

SHARED = "parameters"
"""Block, and public extra, of the further shared parameters."""
PARTICIPANTS = "participants"
"""Block of one value, 1 from every client."""
NEGATIVES = "item-table-negatives"
"""Stream that training negatives are drawn from."""


Judge: TypeAlias = Callable[[IntArray, SingleArray], Mapping[str, FloatArray]]
"""Measures trained models: float64[B] by name of the figure, from float32[B, m] scores."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ItemTableStep(FinishedStep):
    """One round's work of a batch of clients.

    Args:
        losses: float64[B], mean loss of each client's training.
        score: scores of all items by the trained models.
        judge: measures them; None does not measure.
    """

    losses: FloatArray
    score: Callable[[], SingleArray]
    judge: Judge | None

    def measure(self) -> Mapping[str, FloatArray]:
        """Figures of the models as trained, before anything is averaged, and their losses."""
        judged = {} if self.judge is None else self.judge(self.clients, self.score())
        return {"training_loss": self.losses, **judged}


class ItemTables:
    """A method of the family as an algorithm; see the module docstring.

    Args:
        method: its model.
        kept_out: per client of the federation, items that are never drawn as negatives beside its
            training items; None for none.
        judge: measures the trained models.
        threads: most threads that clients are trained in; None for the processors there are. The
            result does not depend on it.
    """

    def __init__(
        self,
        method: ItemTableMethod,
        *,
        kept_out: Ragged | None = None,
        judge: Judge | None = None,
        threads: int | None = None,
    ) -> None:
        if method.personal and not method.dense:
            raise ValueError(f"{method.name}: a personal table needs a dense method")
        if hasattr(method, "mix") and not hasattr(self, "reads_singles"):
            raise ValueError(
                f"{method.name}: its server mixes single tables, so use ``SingleTables``"
            )
        self.method = method
        self.n_items = method.n_items
        self.width = method.config.rank
        self.rounds = method.config.rounds
        self._kept_out = kept_out
        self._judge = judge
        self._threads = usable_cores() if threads is None else threads
        probe = method.start(Streams.from_seed(0))
        self._shared = len(probe.shared)

    def blocks(self, n_rows: int) -> tuple[BlockShape, ...]:
        """Rows of the table, further parameters where there are any, and the participants."""
        table = BlockShape(name=TABLE, kind=BlockKind.ITEMS, size=n_rows, width=self.width)
        return (table, *flat_blocks({SHARED: self._shared, PARTICIPANTS: 1}, self.width))

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """The common initial state.

        Raises:
            ConfigError: a table of another number of items.
        """
        if n_rows != self.n_items:
            raise ConfigError("n_rows", n_rows, f"the method was made for {self.n_items} items")
        start = self.method.start(streams)
        extras = {SHARED: start.shared} if self._shared else {}
        return PublicState(round=0, table=start.table, extras=extras)

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Private parameters and personal tables.

        Raises:
            DataError: a client has no training item.
        """
        empty = vault.clients[vault.example_counts() == 0]
        if len(empty):
            problem = (
                f"client {empty[0]} lacks a training item: leave out users with so few ratings"
            )
            raise DataError("training items", problem)
        vault.create(OWN, self.method.own(vault.clients, streams))
        if self.method.personal:
            # All clients have the same, as published, unless each draws under its own secret.
            own = vault.clients[:1] if not streams.keyed and len(vault.clients) else vault.clients
            starts = [self.method.personal_start(streams.of(client)) for client in own.tolist()]
            tables = np.empty((vault.n_clients, *starts[0].shape), dtype=np.float32)
            tables[:] = starts
            vault.create(PERSONAL, tables)

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> ItemTableStep:
        """Local training of some clients.

        Raises:
            DivergedError: the loss of one, or something that it trained, is not a number.
            ConfigError: shared or private tables are of another number of items or rank.
        """
        round_ = public.round + 1
        self._require(public)
        table = public.table.astype(np.float32)
        models, examples = self._prepared(clients, public, vault, streams, table)
        losses = training.train(
            self.method, models, examples, clients=clients, round_=round_, threads=self._threads
        )
        personal = models.personal.reshape(-1, *table.shape) if self.method.personal else None
        kept = {"private part": models.own, "copy of the further parameters": models.shared}
        if personal is not None:
            kept["personal item table"] = personal.reshape(len(clients), -1)
        for what, values in kept.items():
            if (place := training.first_unknown(values)) >= 0:
                raise training.diverged(self.method, round_, int(clients[place]), what)

        def commit(vault: Vault) -> None:
            vault.write(OWN, clients, models.own)
            if personal is not None:
                vault.write(PERSONAL, clients, personal)

        return ItemTableStep(
            clients=clients,
            upload=self._upload(clients, public, models, table),
            commit=commit,
            losses=losses,
            score=lambda: self.method.scores(models, table),
            judge=self._judge,
        )

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """The mean change, added."""
        present = max(float(aggregate.vector(PARTICIPANTS)[0]), 1.0)
        table = public.table + aggregate.of(TABLE).values / present
        extras = dict(public.extras)
        if self._shared:
            extras[SHARED] = extras[SHARED] + aggregate.vector(SHARED) / present
        return PublicState(round=public.round + 1, table=table, extras=extras)

    def public_knowledge(self) -> dict[str, Any]:
        """All hyper-parameters."""
        row_sets = "others" if self.method.dense else "drawn"
        traits = RowTraits(rows="items", row_sets=row_sets, form=self.method.form)
        return {"name": self.method.name, **self.method.knowledge(), "traits": asdict(traits)}

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """int64[n], rows each client sends, at most."""
        flat = BlockLayout(self.blocks(n_rows)).rows - n_rows
        return np.asarray(self._most_rows(vault) + flat, dtype=np.int64)

    def upload_vectors(self, vault: Vault) -> Mapping[str, IntArray]:
        """Nothing goes to a bag."""
        return {}

    def step_bytes(self, vault: Vault, n_rows: int) -> IntArray:
        """int64[n], bytes that a client's step works in: tables, changes, words and examples."""
        rows = self._most_rows(vault)
        tables = 20 + 8 * self.method.personal
        examples = vault.example_counts() * (1 + self.method.config.local.negatives)
        own = 28 * self._shared + 24 * examples
        return np.asarray(rows * (tables * self.width + 16) + own, dtype=np.int64)

    def _most_rows(self, vault: Vault) -> IntArray:
        counts = vault.example_counts() * (1 + self.method.config.local.negatives)
        if self.method.dense:
            return np.full(vault.n_clients, self.n_items)
        return np.asarray(np.minimum(counts, self.n_items), dtype=np.int64)

    def draws(
        self, clients: IntArray, vault: Vault, streams: Streams, round_: int
    ) -> tuple[Examples, WordArray]:
        """What some clients train on in a round, and uint64[B] that its order follows from."""
        rated, nothing = vault.rated(clients), Ragged.empty(len(clients))
        drawn = draw_negatives(
            Ragged(rated.indptr, rated.items),
            nothing if self._kept_out is None else self._kept_out.of_all(clients),
            self.n_items,
            per_positive=self.method.config.local.negatives,
            stream=streams.private(NEGATIVES),
            round=round_,
            clients=clients,
        )
        stream = streams.private("item-table-batches")
        keys = stream.words_at(round_, clients, np.zeros_like(clients), width=1)
        return drawn, keys[:, 0].copy()

    def between_rounds(self, clients: IntArray, public: PublicState, vault: Vault) -> Models:
        """Models of some clients between two rounds: shared part averaged, private part as trained.

        Raises:
            ConfigError: as ``client_step``.
        """
        self._require(public)
        table, size, rated = public.table.astype(np.float32), len(clients), vault.rated(clients)
        indptr = np.arange(size + 1, dtype=np.int64) * self.n_items
        items = np.tile(np.arange(self.n_items, dtype=np.int32), size)
        positives = np.repeat(indptr[:-1], np.diff(rated.indptr)) + rated.items
        return self._models(clients, public, vault, table, (indptr, items, positives))

    def _prepared(
        self,
        clients: IntArray,
        public: PublicState,
        vault: Vault,
        streams: Streams,
        table: SingleArray,
    ) -> tuple[Models, training.LocalExamples]:
        """The clients' models before training, and what they train on."""
        drawn, keys = self.draws(clients, vault, streams, public.round + 1)
        counts = np.empty(len(clients), dtype=np.int64)
        rows = np.empty(len(drawn.items), dtype=np.int64)
        most = len(clients) * self.n_items
        items = np.empty(most if self.method.dense else len(rows), dtype=np.int32)
        arguments = (drawn.indptr, drawn.items, self.n_items, self.method.dense)
        items = items[: training.number_rows(*arguments, counts, items, rows)]
        held = bounds_of(counts), items, rows[drawn.labels == 1]
        labels = drawn.labels.astype(np.float32)
        examples = training.LocalExamples(indptr=drawn.indptr, rows=rows, labels=labels, keys=keys)
        return self._models(clients, public, vault, table, held), examples

    def _models(
        self,
        clients: IntArray,
        public: PublicState,
        vault: Vault,
        table: SingleArray,
        held: tuple[IntArray, IndexArray, IntArray],
    ) -> Models:
        """Models of clients who hold some rows: (indptr, items, positives), as of ``Models``."""
        indptr, items, positives = held
        shared = public.extras[SHARED] if self._shared else np.empty(0)
        return Models(
            indptr=indptr,
            items=items,
            table=np.take(table, items, axis=0),
            personal=self._personal(clients, vault, table),
            positives_indptr=vault.rated(clients).indptr,
            positives=positives,
            shared=np.tile(shared.astype(np.float32), (len(clients), 1)),
            own=np.asarray(vault.read(OWN, clients), dtype=np.float32),
        )

    def _require(self, public: PublicState) -> None:
        """Refuse shapes with which compiled loops would access memory out of bounds.

        Raises:
            ConfigError: the shared table, or the further parameters, have another shape.
        """
        due: dict[str, tuple[int, ...]] = {"table": (self.n_items, self.width)}
        if self._shared:
            due[SHARED] = (self._shared,)
        arrays = {"table": public.table, **public.extras}
        for name, shape in due.items():
            found = arrays[name].shape if name in arrays else None
            if found != shape:
                problem = f"a shared {name} of shape {found} meets a method of {shape}"
                raise ConfigError("algorithm.rank", self.width, problem)

    def _personal(self, clients: IntArray, vault: Vault, table: SingleArray) -> SingleArray:
        if not self.method.personal:
            return np.empty((0, table.shape[1]), dtype=np.float32)
        held: Any = vault.read(PERSONAL, clients)
        if held.shape[1:] != table.shape:
            problem = f"personal tables of shape {held.shape[1:]} meet an item table {table.shape}"
            raise ConfigError("algorithm.rank", self.width, problem)
        return np.asarray(held.reshape(-1, table.shape[1]), dtype=np.float32)

    def _upload(
        self, clients: IntArray, public: PublicState, models: Models, table: SingleArray
    ) -> Upload:
        moved = np.empty(models.table.shape)
        if not training.changes(models.table, table, models.items, moved):
            row = training.first_unknown(models.table)
            place = int(np.searchsorted(models.indptr, row, side="right")) - 1
            client = int(clients[place])
            raise training.diverged(self.method, public.round + 1, client, "item table")
        block = RowBlock(indptr=models.indptr, rows=models.items, values=moved)
        blocks: dict[str, RowBlock | FlatBlock] = {TABLE: block}
        if self._shared:
            before = public.extras[SHARED].astype(np.float32)[None]
            values = np.empty(models.shared.shape)
            training.changes(models.shared, before, np.zeros(len(clients), np.int32), values)
            blocks[SHARED] = FlatBlock(values=values)
        blocks[PARTICIPANTS] = FlatBlock(values=np.ones((len(clients), 1)))
        return Upload(clients=clients, blocks=blocks)
