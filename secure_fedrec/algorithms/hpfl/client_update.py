"""A client's round of HPFL (Algorithm 3, ClientUpdate): update, train, judge, draft.

Everything here happens on one client, with its own records; the uploads are made in ``upload``.
"""

from dataclasses import dataclass, replace

import numpy as np

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.hpfl.aggregation import HPFLTable
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.update import blend, general_representations
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.evaluation import level_hits
from secure_fedrec.models.gum.arrays import Records
from secure_fedrec.models.gum.model import GUM
from secure_fedrec.vault import Vault

USER_CENTRES, ITEM_CENTRES = "user-centres", "item-centres"
"""Public extras: the centres of all drafts."""

# Private tables, with the fields of ``ClientModel`` that they hold: of any number of rows, or of
# one array per client.
_RAGGED = {"users": "user_embeddings", "items": "item_representations"}
_WHOLE = {"vectors": "attribute_vectors", "hidden": "hidden_vectors", "accuracies": "accuracies"}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClientModel:
    """The state that one client keeps between rounds.

    Args:
        users: float64[U, K], Emb_u.
        items: float64[I, K], Emb_v; with slip and guess float64[I, K + 2].
        vectors: float64[K, 2 N + K], row k is [KM_u[k], KM_v[k], RM[k]].
        hidden: float64[N], HM.
        accuracies: float64[K + 1], on each attribute and, last, on all validation records; 0
            before the first training.
    """

    users: FloatArray
    items: FloatArray
    vectors: FloatArray
    hidden: FloatArray
    accuracies: FloatArray

    @classmethod
    def of(cls, gum: GUM, parameters: FloatArray, accuracies: FloatArray) -> "ClientModel":
        """From the flat vector of a model."""
        parts = gum.layout.parts(parameters)
        items = parts.item_embeddings
        if len(parts.slip):
            items = np.column_stack([items, parts.slip, parts.guess])
        vectors = np.hstack([parts.knowledge_user, parts.knowledge_item, parts.relation])
        return cls(
            users=parts.user_embeddings,
            items=items,
            vectors=vectors,
            hidden=parts.hidden,
            accuracies=accuracies,
        )

    def parameters(self, gum: GUM) -> FloatArray:
        """The flat vector of the model."""
        n, k = gum.layout.hidden, gum.layout.attributes
        flat = np.empty(gum.layout.size)
        parts = gum.layout.parts(flat)
        parts.user_embeddings[...] = self.users
        parts.item_embeddings[...] = self.items[:, :k]
        if len(parts.slip):
            parts.slip[...], parts.guess[...] = self.items[:, k], self.items[:, k + 1]
        parts.knowledge_user[...] = self.vectors[:, :n]
        parts.knowledge_item[...] = self.vectors[:, n : 2 * n]
        parts.relation[...] = self.vectors[:, 2 * n :]
        parts.hidden[...] = self.hidden
        return flat

    @classmethod
    def read(cls, vault: Vault, client: int) -> "ClientModel":
        """From the client's vault."""
        one = np.array([client])
        rows = {part: vault.read_ragged(name, client) for part, name in _RAGGED.items()}
        return cls(**rows, **{part: vault.read(name, one)[0] for part, name in _WHOLE.items()})

    def write(self, vault: Vault, client: int) -> None:
        """Back to the client's vault."""
        for part, name in _RAGGED.items():
            vault.write_ragged(name, client, getattr(self, part))
        for part, name in _WHOLE.items():
            vault.write(name, np.array([client]), getattr(self, part)[None])


def create_tables(vault: Vault, models: list[ClientModel]) -> None:
    """Put the models of all clients into their vaults."""
    for part, name in _RAGGED.items():
        tables = [getattr(model, part) for model in models]
        ends = np.cumsum([0, *map(len, tables)], dtype=np.int64)
        vault.create_ragged(name, ends, np.concatenate(tables))
    for part, name in _WHOLE.items():
        vault.create(name, np.stack([getattr(model, part) for model in models]))


def update(
    model: ClientModel, config: HPFLConfig, table: HPFLTable, public: PublicState
) -> ClientModel:
    """Algorithm 1: the model that the next local training starts from.

    Args:
        model: the client's.
        config: says which components are federated, and how.
        table: where the global attribute vectors and, where it is shared, the global HM lie.
        public: after the last round; no centres before there was a draft.
    """
    overall = model.accuracies[-1:]
    by_attribute = model.accuracies[:-1]
    vectors, hidden, k = model.vectors, model.hidden, table.attributes
    if config.shares_public:
        vectors = blend(vectors, public.table[:k, :-1], by_attribute[:, None])  # eq. 1
        if table.share_hidden:
            hidden = blend(hidden, public.table[k, : table.hidden], overall)
    # Dimension k of an embedding is attribute k; slip and guess belong to no attribute.
    extra = np.repeat(overall, model.items.shape[1] - len(by_attribute))
    users, items = model.users, model.items
    if config.shares_private:
        by_dimension = np.concatenate([by_attribute, extra])
        users = _blend_centres(users, public.extras[USER_CENTRES], by_attribute, config)
        items = _blend_centres(items, public.extras[ITEM_CENTRES], by_dimension, config)
    return replace(model, users=users, items=items, vectors=vectors, hidden=hidden)


def judge(
    gum: GUM,
    parameters: FloatArray,
    validation: Records,
    attributes: BoolArray,
    trained_on: IntArray,
    levels: FloatArray,
    config: HPFLConfig,
) -> FloatArray:
    """Accuracy on the validation records, per attribute and over all: float64[K + 1].

    An attribute without a validation record has the overall accuracy if the client trained on it,
    and 0 (the global vector replaces its own) if not.
    """
    found = gum.predict(parameters, validation.users, validation.items)
    hits = level_hits(found, validation.scores, levels, rule=config.accuracy)
    described = attributes[validation.items]
    records = described.sum(axis=0)
    overall = float(hits.mean())
    shares = (described & hits[:, None]).sum(axis=0) / np.maximum(records, 1)
    shares = np.where(records > 0, shares, overall)
    shares[trained_on == 0] = 0.0
    if config.shifted_accuracies:
        shares = np.concatenate([[0.0], shares[:-1]])
    return np.append(shares, overall)


def count_attributes(records: Records, attributes: BoolArray) -> IntArray:
    """int64[K], records whose item has the attribute."""
    return np.asarray(attributes[records.items].sum(axis=0, dtype=np.int64))


def _blend_centres(
    embeddings: FloatArray, centres: FloatArray, accuracies: FloatArray, config: HPFLConfig
) -> FloatArray:
    """Eq. 2."""
    if not len(centres):
        return embeddings
    general = general_representations(embeddings, centres, config.centre_weights)
    return blend(embeddings, general, accuracies)
