"""HPFL: hierarchical personalized federated learning of user models (Algorithms 1 to 3).

Clients are organisations with users, items and tables of their own; they share the attributes of
items. Each keeps the private parts of a ``GUM`` (embeddings of its users and items) and its version
of the public ones (a vector per attribute). A round, at client i:

    update      blend its parts with the global ones by its accuracies     (Algorithm 1, eq. 1, 2)
    train       on its own records, stopping early on validation records of its own
    judge       Acc_k, the accuracy on validation records, per attribute
    draft       cluster the embeddings of its users, and those of its items

and at the server (Algorithm 2): the attribute vectors' weighted means (eq. 3), the clusters of all
drafts. The sums of eq. 3, numerator and denominator, travel in one protected sum
(``aggregation``); drafts are sent in two bags, which show vectors without owners.

Choices that the paper leaves open: HPFL-K ("only public components") federates the attribute
vectors and no drafts, HPFL-R the drafts and no attribute vectors. I_k, the iterations on attribute
k, are the epochs of the round times the training records of the attribute. The update needs a
global model, which does not exist in round 1. HM is not named among the public parts and stays
local unless ``share_hidden``. Settings named in ``HPFLConfig`` repeat choices of the published
code.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from secure_fedrec.algorithms.base import FinishedStep, PublicState
from secure_fedrec.algorithms.hpfl.aggregation import HPFLTable, accuracy_threshold
from secure_fedrec.algorithms.hpfl.client_update import (
    ITEM_CENTRES,
    USER_CENTRES,
    ClientModel,
    count_attributes,
    create_tables,
    judge,
    update,
)
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.drafts import cluster_centres, n_clusters
from secure_fedrec.algorithms.hpfl.upload import (
    ITEM_DRAFTS,
    USER_DRAFTS,
    Given,
    Selection,
    give_out,
    pack,
)
from secure_fedrec.algorithms.user_models import UserModels, split_records
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray
from secure_fedrec.data.organisations.catalogues import Catalogues
from secure_fedrec.models.gum.model import GUM
from secure_fedrec.models.gum.training import Trained, train
from secure_fedrec.streams import Streams, uniform_reals
from secure_fedrec.traits import OTHER_ROWS
from secure_fedrec.uploads import Aggregate
from secure_fedrec.vault import Vault

_THRESHOLD = "threshold"
_SEEDS = 2**32


class HPFL:
    """The algorithm; see the module docstring.

    Args:
        config: hyper-parameters.
        organisations: the clients' sizes, the attributes of their items, and the levels of scores.
            A client reads its own part; records come from the vault.
        trainer: trains a client's model, with the arguments of ``gum_training.train``.

    Attributes:
        width: values per uploaded row: 2 N + K and a weight.
        rows: rows of the shared table: attributes, then HM and the histogram where they are sent.
        rounds: T.
    """

    def __init__(
        self,
        config: HPFLConfig,
        organisations: Catalogues,
        *,
        trainer: Callable[..., Trained] = train,
    ) -> None:
        self.config = config
        self._trainer = trainer
        self._attributes = organisations.attributes
        self._levels = organisations.levels
        self._gums = UserModels(config.gum, organisations)
        self.table = HPFLTable(
            attributes=organisations.n_attributes,
            hidden=config.gum.hidden,
            share_hidden=config.share_hidden and config.shares_public,
            buckets=config.histogram_buckets,
        )
        self.width = self.table.width
        self.rows = self.table.rows
        self.rounds = config.rounds

    def gum(self, client: int) -> GUM:
        """The user model of a client."""
        return self._gums[client]

    def initial_public(self, n_rows: int, streams: Streams) -> PublicState:
        """The attribute vectors before training, and no centres.

        Raises:
            ConfigError: ``n_rows`` is not ``rows``.
        """
        self.table.require_rows(n_rows)
        table = np.zeros((self.rows, self.width))
        common = self._common_start(streams)
        table[: self.table.attributes, :-1] = common.vectors
        if self.table.share_hidden:
            table[self.table.attributes, : len(common.hidden)] = common.hidden
        extras: dict[str, FloatArray] = {}
        if self.config.shares_private:
            extras[USER_CENTRES] = np.zeros((0, common.users.shape[1]))
            extras[ITEM_CENTRES] = np.zeros((0, common.items.shape[1]))
        if self.config.histogram_buckets:
            extras[_THRESHOLD] = np.zeros(1)
        return PublicState(round=0, table=table, extras=extras)

    def initialise(self, vault: Vault, streams: Streams) -> None:
        """Draw every client's model.

        Raises:
            ConfigError: the vault is of other clients, or a client has no training record, no
                validation record, or a record of a user or item that is not its own.
        """
        self._gums.require_records(vault, validation=True)
        common = self._common_start(streams)
        models = []
        for client, gum in self._gums.held(vault):
            accuracies = np.zeros(gum.layout.attributes + 1)
            stream = streams.of(client).stream("hpfl-start")
            own = ClientModel.of(gum, gum.start(stream.generator(lane=client + 1)), accuracies)
            if self.config.start == "common":
                own = replace(own, vectors=common.vectors, hidden=common.hidden)
            models.append(own)
        create_tables(vault, models)

    def client_step(
        self, clients: IntArray, public: PublicState, vault: Vault, streams: Streams
    ) -> FinishedStep:
        """Local work of some clients, one after the other."""
        done = [self._work(client, public, vault, streams) for client in clients.tolist()]
        upload = pack(clients, [each for _, each in done])

        def commit(vault: Vault) -> None:
            for client, (model, _) in zip(clients.tolist(), done, strict=True):
                model.write(vault, client)

        return FinishedStep(clients=clients, upload=upload, commit=commit)

    def server_step(self, public: PublicState, aggregate: Aggregate) -> PublicState:
        """Algorithm 2: means of attribute vectors (eq. 3), threshold, clusters of all drafts."""
        sums = aggregate.values
        extras = dict(public.extras)
        if self.config.histogram_buckets:
            histogram = self.table.histogram_of(sums)
            extras[_THRESHOLD] = np.array([accuracy_threshold(histogram, self.config.quantile)])
        if self.config.shares_private:
            share, seeding = self.config.centres, self.config.seeding
            for drafts, centres in ((USER_DRAFTS, USER_CENTRES), (ITEM_DRAFTS, ITEM_CENTRES)):
                found = aggregate.bags[drafts]
                if len(found):  # no client sent a draft: the old centres stay
                    extras[centres] = cluster_centres(
                        found, share, seed=public.round, seeding=seeding
                    )
        return PublicState(
            round=public.round + 1, table=self.table.means_of(sums, public.table), extras=extras
        )

    def extra_rows(self, completed: int) -> Mapping[str, int | None]:
        """The number of centres, by the drafts; 0 before the first (``VaryingExtras``)."""
        if not self.config.shares_private:
            return {}
        return dict.fromkeys((USER_CENTRES, ITEM_CENTRES), None if completed else 0)

    def parameters(self, vault: Vault, client: int) -> FloatArray:
        """A client's present model as the flat vector of its GUM."""
        return ClientModel.read(vault, client).parameters(self._gums[client])

    def predict_scores(
        self, vault: Vault, client: int, users: IntArray, items: IndexArray | IntArray
    ) -> FloatArray:
        """Predicted scores of (user, item) pairs of a client, local numbers: float64[N]."""
        return self._gums[client].predict(
            self.parameters(vault, client), users, items.astype(np.int64)
        )

    def upload_rows(self, vault: Vault, n_rows: int) -> IntArray:
        """int64[n], most rows each client sends: one per attribute it trains on, and the rest."""
        if not self.config.shares_public:
            return np.zeros(vault.n_clients, dtype=np.int64)
        seen = [
            np.count_nonzero(
                count_attributes(split_records(vault.examples(client))[0], self._attributes[client])
            )
            for client in vault.clients.tolist()
        ]
        return np.array(seen, dtype=np.int64) + (n_rows - self.table.attributes)

    def upload_vectors(self, vault: Vault) -> Mapping[str, IntArray]:
        """int64[n] by bag, most drafts each client sends."""
        return {name: most[vault.clients] for name, most in self._drafts().items()}

    @property
    def bag_sizes(self) -> Mapping[str, tuple[int, int]]:
        """(values per draft, most drafts of one client) by bag; public."""
        drafts, extra = self._drafts(), 2 if self.config.gum.slip_and_guess else 0
        widths = {USER_DRAFTS: self.table.attributes, ITEM_DRAFTS: self.table.attributes + extra}
        return {name: (widths[name], int(most.max())) for name, most in drafts.items()}

    def public_knowledge(self) -> dict[str, Any]:
        """All hyper-parameters, and where things lie in the table."""
        known = {"name": "hpfl", **asdict(self.config), "table": asdict(self.table)}
        return {**known, "traits": asdict(OTHER_ROWS)}

    def _work(
        self, client: int, public: PublicState, vault: Vault, streams: Streams
    ) -> tuple[ClientModel, Given]:
        """Algorithm 3, ClientUpdate."""
        config, gum, attributes = self.config, self._gums[client], self._attributes[client]
        round_ = public.round + 1
        model = ClientModel.read(vault, client)
        if public.round:
            model = update(model, config, self.table, public)
        records, validation = split_records(vault.examples(client))
        generator = streams.private("hpfl-batches").generator(round_, client)
        start = model.parameters(gum)
        trained = self._trainer(gum, start, records, validation, config.training, generator)
        counts = count_attributes(records, attributes)
        accuracies = judge(
            gum, trained.parameters, validation, attributes, counts, self._levels, config
        )
        model = ClientModel.of(gum, trained.parameters, accuracies)
        iterations = np.append(counts, len(records.scores)) * trained.epochs
        selection = self._selection(client, public, streams)
        return model, give_out(model, iterations, config, self.table, selection)

    def _selection(self, client: int, public: PublicState, streams: Streams) -> Selection:
        """The client's draws of the round, and p."""
        words = streams.private("hpfl-choices").words_at(
            public.round + 1, np.array([client]), np.array([0]), width=3
        )
        users, items = (words[0, :2] % np.uint64(_SEEDS)).tolist()
        threshold = public.extras.get(_THRESHOLD, np.zeros(1))
        return Selection(
            threshold=float(threshold[0]),
            draw=float(uniform_reals(words[0, 2:])[0]),
            seeds=(users, items),
        )

    def _drafts(self) -> dict[str, IntArray]:
        """int64[n] by bag, clusters of each client."""
        if not self.config.shares_private:
            return {}
        layouts = [gum.layout for gum in self._gums]
        users = [n_clusters(layout.users, self.config.user_drafts) for layout in layouts]
        items = [n_clusters(layout.items, self.config.item_drafts) for layout in layouts]
        return {USER_DRAFTS: np.array(users), ITEM_DRAFTS: np.array(items)}

    def _common_start(self, streams: Streams) -> ClientModel:
        """What does not depend on a client's sizes: the model of one user and one item."""
        k = self.table.attributes
        gum = GUM(self.config.gum, n_users=1, attributes=np.ones((1, k), dtype=np.bool_))
        start = gum.start(streams.stream("hpfl-start").generator())
        return ClientModel.of(gum, start, np.zeros(k + 1))
