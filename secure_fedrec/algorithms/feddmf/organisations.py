"""What all forms of FedDMF do at an organisation: start, train an epoch, keep, score."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any, Final, TypeAlias

import numpy as np

from secure_fedrec.algorithms.feddmf.config import ALL_PAIRS, FedDMFConfig
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.organisations.common_items import CommonItems
from secure_fedrec.errors import ConfigError, DivergedError
from secure_fedrec.models.dmf.arrays import Examples, Targets
from secure_fedrec.models.dmf.loops import unit_vectors
from secure_fedrec.models.dmf.model import DMF, start_layers, start_vectors
from secure_fedrec.models.dmf.training import (
    Interactions,
    TrainingState,
    examples_of,
    part_of,
    train_epoch,
)
from secure_fedrec.streams import Streams
from secure_fedrec.traits import RowTraits
from secure_fedrec.uploads import RowBlock
from secure_fedrec.vault import Vault

_TABLES: Final = ("parameters", "first_moments", "second_moments")
_POWERS: Final = "powers"
_KEY_BITS: Final = 63


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """An organisation after an epoch.

    Args:
        client: which.
        state: its model, not yet kept.
    """

    client: int
    state: TrainingState


Aim: TypeAlias = Callable[[int, TrainingState], tuple[IntArray, FloatArray]]


class DMFOrganisations:
    """The organisations' halves; see the package.

    Args:
        config: hyper-parameters.
        data: how many users each organisation has and which items; public among them. What users
            did comes from the vault (``CommonItems.vault``).
        items: item tables of organisations that bring one, float64[I, d], to start from.
    """

    def __init__(
        self,
        config: FedDMFConfig,
        data: CommonItems,
        items: Mapping[int, FloatArray] | None = None,
    ) -> None:
        self.config = config
        self.data = data
        self._items = items or {}
        self._epochs: dict[int, tuple[bytes, Examples]] = {}
        self._listed = [data.items_of(place) for place in range(data.n_organisations)]
        self._models = [
            DMF(config=config.model, users=users, items=len(own))
            for users, own in zip(data.n_users.tolist(), self._listed, strict=True)
        ]

    @property
    def rounds(self) -> int:
        """T."""
        return self.config.rounds

    def model(self, client: int) -> DMF:
        """The model of an organisation."""
        return self._models[client]

    def listed(self, client: int) -> IntArray:
        """int64[I], the items of its table."""
        return self._listed[client]

    def places(self, client: int, items: IntArray) -> IntArray:
        """int64[k], places of an organisation's items in its table."""
        return np.searchsorted(self._listed[client], items)

    def start(self, vault: Vault, streams: Streams) -> None:
        """Create the private tables.

        Raises:
            ConfigError: the vault is of other organisations, a pair is of a user or an item that
                its organisation does not have, or an item table has another shape.
        """
        for client in vault.clients.tolist():
            if client >= len(self._models):
                raise ConfigError(
                    "data.organisations", client, "is not the number of an organisation"
                )
            self._require_pairs(client, vault)
        states = [self._start(client, streams) for client in vault.clients.tolist()]
        ends = np.cumsum([0, *map(len, states)], dtype=np.int64)
        nothing = np.zeros(ends[-1])
        for name, values in zip(_TABLES, (np.concatenate(states), nothing, nothing), strict=True):
            vault.create_ragged(name, ends, values.copy())
        vault.create(_POWERS, np.ones((vault.n_clients, 2)))

    def common_start(self, streams: Streams) -> tuple[FloatArray, FloatArray]:
        """Public vectors of all items, float64[m, d], and layers to start from."""
        config, stream = self.config.model, streams.stream("dmf-start")
        vectors = start_vectors(config, self.data.n_items, stream.generator())
        return vectors, start_layers(config, stream.generator(1))

    def read(self, client: int, vault: Vault) -> TrainingState:
        """A copy of an organisation's private state."""
        tables = [vault.read_ragged(name, client) for name in _TABLES]
        parameters, first, second = tables
        powers = vault.read(_POWERS, np.array([client]))[0]
        return TrainingState(parameters=parameters, first=first, second=second, powers=powers)

    def train(
        self, clients: IntArray, aim: Aim, *, round_: int, vault: Vault, streams: Streams
    ) -> list[Trained]:
        """A round's part of an epoch, from the organisations' private state.

        Args:
            clients: which organisations.
            aim: what each item vector is pulled towards, int64[I + 1] and float64[T, d], by the
                organisation and the copy of its model that is trained; it may change that.
            round_: the round in progress.
            vault: holds their pairs.
            streams: streams of the run.

        Raises:
            DivergedError: the loss of an organisation, or a parameter, is no longer a number.
        """
        return [self._train(each, aim, round_, vault, streams) for each in clients.tolist()]

    def _train(self, client: int, aim: Aim, round_: int, vault: Vault, streams: Streams) -> Trained:
        model, config = self._models[client], self.config
        epoch, part = divmod(round_ - 1, config.exchanges)
        whole = self._examples(client, epoch, vault, streams)
        examples = part_of(whole, part, config.exchanges)
        state = self.read(client, vault)
        indptr, vectors = aim(client, state)
        everywhere = config.similarity == ALL_PAIRS and config.beta > 0
        pulled = Targets(indptr, unit(vectors), config.beta, config.margin, everywhere)
        word = streams.private("dmf-dropout").words_at(round_, np.array([client]), np.array([0]))
        key = int(word[0, 0] >> np.uint64(64 - _KEY_BITS))
        losses = train_epoch(model, state, examples, pulled, config.training, key=key)
        if not (np.isfinite(losses).all() and np.isfinite(state.parameters).all()):
            problem = (
                f"round {round_}, organisation {client}: the loss is not a number (beta = "
                f"{config.beta:g}); all are as they were after round {round_ - 1}"
            )
            rate = config.training.learning_rate
            raise DivergedError("algorithm.training.learning_rate", rate, problem)
        return Trained(client=client, state=state)

    def keep(self, trained: list[Trained], vault: Vault) -> None:
        """Write the organisations' new state."""
        for each in trained:
            state = each.state
            tables = (state.parameters, state.first, state.second)
            for name, values in zip(_TABLES, tables, strict=True):
                vault.write_ragged(name, each.client, values)
            vault.write(_POWERS, np.array([each.client]), state.powers[None])

    def hand_over(self, vault: Vault, client: int, items: IntArray) -> RowBlock:
        """Vectors of items that an organisation has, as it gives them to others.

        In a round of the exchange form these are common items. To let others predict, an
        organisation gives those of the items that it alone has, and they say how often these were
        interacted with.
        """
        vectors = self.model(client).items_of(vault.read_ragged(_TABLES[0], client))
        rows = vectors[self.places(client, items)]
        ends = np.array([0, len(items)])
        return RowBlock(indptr=ends, rows=items.astype(np.int32), values=rows)

    def scores(
        self, vault: Vault, client: int, users: IntArray, given: RowBlock | IntArray
    ) -> FloatArray:
        """An organisation's scores of its users for its own items, or for vectors given to it.

        Args:
            vault: holds its model.
            client: which organisation.
            users: int64[B], places of its users.
            given: int64[k], items that it has, or another's ``hand_over``.

        Returns:
            float64[B, k], in (0, 1).

        Raises:
            ConfigError: the vectors have another width.
        """
        model, parameters = self.model(client), vault.read_ragged(_TABLES[0], client)
        if not isinstance(given, RowBlock):
            return model.scores(
                parameters, users, model.items_of(parameters)[self.places(client, given)]
            )
        vectors = np.zeros((0, 0)) if given.values is None else given.values
        require_width(vectors, self.config.model.width, "item vectors given to it")
        return model.scores(parameters, users, vectors)

    def across(self, vault: Vault, client: int, items: IntArray) -> FloatArray:
        """An organisation's scores of all its users, for items of any organisation.

        Items that it lacks are scored by the vectors of the first organisation that has them.

        Args:
            vault: holds all models.
            client: which organisation.
            items: int64[k].

        Returns:
            float64[U, k], in (0, 1).
        """
        users = np.arange(int(self.data.n_users[client]))
        owners = np.argmax(self.data.listed[:, items], axis=0)
        owners[self.data.listed[client, items]] = client
        found = np.empty((len(users), len(items)))
        for owner in np.unique(owners).tolist():
            own = owners == owner
            given = self.hand_over(vault, owner, items[own])
            found[:, own] = self.scores(vault, client, users, given)
        return found

    def knowledge(self, name: str, traits: RowTraits) -> dict[str, Any]:
        """Public knowledge: all hyper-parameters, and how many items are common."""
        return {
            "name": name,
            **asdict(self.config),
            "n_items": self.data.n_items,
            "users": self.data.n_users.tolist(),
            "common_items": int(self.data.common.sum()),
            "traits": asdict(traits),
        }

    def _examples(self, client: int, epoch: int, vault: Vault, streams: Streams) -> Examples:
        """The pairs of an epoch, kept from one of its rounds to the next to save time alone."""
        pairs, order = vault.examples(client), streams.private("dmf-order")
        word = order.words_at(epoch, np.array([client]), np.array([0]))
        key = sha256(b"".join(part.tobytes() for part in (word, pairs["users"], pairs["items"])))
        held = self._epochs.get(client)
        if held is None or held[0] != key.digest():
            model, training = self._models[client], self.config.training
            known = Interactions.of_pairs(pairs["users"], pairs["items"], model)
            held = (
                key.digest(),
                examples_of(known, training, streams, epoch=epoch, client=client),
            )
            self._epochs = {**self._epochs, client: held} if self.config.exchanges > 1 else {}
        return held[1]

    def _start(self, client: int, streams: Streams) -> FloatArray:
        """The flat vector with which an organisation starts."""
        config, model = self.config.model, self._models[client]
        generator = streams.of(client).stream("dmf-start").generator(lane=1 + client)
        users = start_vectors(config, model.users, generator)
        vectors, layers = self.common_start(streams)
        vectors = vectors[self._listed[client]]
        if self.config.start == "independent":
            vectors = start_vectors(config, model.items, generator)
            layers = start_layers(config, generator)
        if client in self._items:
            vectors = self._items[client]
            require_width(vectors, config.width, f"the item table of organisation {client}")
            if len(vectors) != model.items:
                problem = f"rows in the item table of organisation {client}, not {model.items}"
                raise ConfigError("data.items", len(vectors), problem)
        return np.concatenate([users.reshape(-1), vectors.reshape(-1), layers])

    def _require_pairs(self, client: int, vault: Vault) -> None:
        pairs, model = vault.examples(client), self._models[client]
        for name, size in (("users", model.users), ("items", model.items)):
            known = pairs.get(name, np.zeros(0, dtype=np.int64))
            if not len(known) or known.min() < 0 or known.max() >= size:
                problem = f"organisation {client} has pairs of {size} {name}, by column"
                raise ConfigError(f"data.{name}", sorted(pairs), problem)


def unit(vectors: FloatArray) -> FloatArray:
    """Vectors at length 1, a function of each alone; those of length 0 stay."""
    found = np.empty_like(vectors)
    unit_vectors(np.ascontiguousarray(vectors), found)
    return found


def require_width(vectors: FloatArray, width: int, whose: str) -> None:
    """Check that vectors are as wide as agreed.

    Raises:
        ConfigError: their width differs.
    """
    if vectors.ndim != 2 or vectors.shape[1] != width:
        problem = f"values in a row of {whose}; all organisations have agreed on {width}"
        raise ConfigError("algorithm.model.width", vectors.shape[-1], problem)
