"""GUM, the general user model of HPFL (section 4.4), which relates users and items by attributes.

An organisation with U users and I items describes both by K public attributes. With the multi-hot
attributes a_v of item v,

    c   = a_v . RM                                         attributes related to the item's
    R_u = (Emb_u * c) . KM_u        R_v = (Emb_v * c) . KM_v                       (eq. 4, 5)
    F   = (R_u - R_v) . HM                                                         (eq. 6, 7)
    h_u = Emb_u * (KM_u . HM)       the user's characteristic on each attribute    (eq. 8)

where ``*`` is element-wise. The embeddings Emb_u, Emb_v in R^K are private; the knowledge matrices
KM_u, KM_v in R^{K x N} and the relations RM in R^{K x K} are the public parts, whose row k
describes attribute k at every organisation; HM in R^N maps to one number.

The paper leaves open how F becomes a prediction: the link is a setting. Its published code differs
from the paper in the start, in a sigmoid around R_u and R_v and in slip and guess values of
the items; these are settings too, and the paper is the default.

All parameters of one organisation live in one flat vector, so that optimisers, proximal terms and
uploads are loops over one array; ``GUM.parts`` names its pieces without copying them.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Final

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.errors import ConfigError
from secure_fedrec.models.gum.arrays import ItemAttributes, Link, Model, Parts
from secure_fedrec.models.gum.loops import predict_pairs
from secure_fedrec.settings import Count, OneOf, Positive, Settings

_LINKS = ("identity", "sigmoid")
_ACTIVATIONS = ("identity", "sigmoid")

STARTS: Final = ("xavier", "identity")
"""Starts of the model: the paper's, as printed, and that of its published code."""


class GUMConfig(Settings, section="gum"):
    """Form of the model.

    Args:
        hidden: N, width of a knowledge vector.
        link: of the prediction: "identity" (F itself) or "sigmoid" (``scale / (1 + exp(-F))``).
        scale: top of the sigmoid's range: 1 for answers and for scores mapped to the range from 0
            to 1, or the highest level of ratings, as in the paper.
        activation: around R_u and R_v: "identity" (paper) or "sigmoid" (published code).
        slip_and_guess: two more private values per item, s and g in (0, 1), turn F into
            ``(1 - s) F + g (1 - F)`` (published code).
        start: "xavier" (paper) draws every table uniformly in ``sqrt(6 / (rows + columns))``;
            "identity" (published code) starts embeddings, slip and guess at 0 and RM at the
            identity, and draws the rest with gain ``sqrt(2)``.

    Raises:
        ConfigError: a field is out of range.
    """

    hidden: Count = 5
    link: Annotated[str, OneOf(_LINKS)] = "sigmoid"
    scale: Positive = 1.0
    activation: Annotated[str, OneOf(_ACTIVATIONS)] = "identity"
    slip_and_guess: bool = False
    start: Annotated[str, OneOf(STARTS)] = "xavier"

    def _agree(self) -> None:
        if self.link == "identity" and self.scale != 1:
            raise self.refusal("scale", "the identity link does not have a scale", (1.0,))


@dataclass(frozen=True, slots=True, kw_only=True)
class GUMLayout:
    """Where the parameters of one organisation lie in their flat vector.

    The private embeddings come first, in rows of K, then slip and guess, then the public parts,
    then HM.

    Args:
        users: U.
        items: I.
        attributes: K.
        hidden: N.
        slip_and_guess: whether items have them.
    """

    users: int
    items: int
    attributes: int
    hidden: int
    slip_and_guess: bool = False

    @property
    def _shapes(self) -> tuple[tuple[int, ...], ...]:
        k, n = self.attributes, self.hidden
        extra = self.items if self.slip_and_guess else 0
        return ((self.users, k), (self.items, k), (extra,), (extra,), (k, n), (k, n), (k, k), (n,))

    @property
    def _starts(self) -> list[int]:
        starts = [0]
        for shape in self._shapes:
            starts.append(starts[-1] + math.prod(shape))
        return starts

    @property
    def size(self) -> int:
        """Number of parameters."""
        return self._starts[-1]

    @property
    def private(self) -> slice:
        """Emb_u, Emb_v, slip and guess."""
        return slice(0, self._starts[4])

    def parts(self, parameters: FloatArray) -> Parts:
        """The named pieces of a flat vector (views).

        Raises:
            ValueError: the vector has another length.
        """
        if parameters.shape != (self.size,):
            raise ValueError(f"parameters have shape {parameters.shape}, not ({self.size},)")
        starts = self._starts
        return Parts(
            *(
                parameters[start:stop].reshape(shape)
                for start, stop, shape in zip(starts[:-1], starts[1:], self._shapes, strict=True)
            )
        )


class GUM:
    """The model of one organisation; it holds no parameters.

    Args:
        config: form of the model.
        n_users: U.
        attributes: bool[I, K], the attributes of its items.

    Attributes:
        config: form of the model.
        layout: where parameters lie.
        items: attributes of the items, as lists.
        link: from F to predictions, for the compiled loops.
    """

    def __init__(self, config: GUMConfig, *, n_users: int, attributes: BoolArray) -> None:
        n_items, n_attributes = attributes.shape
        if min(n_users, n_items, n_attributes) < 1:
            raise ConfigError(
                "gum", (n_users, n_items, n_attributes), "needs users, items and attributes"
            )
        self.config = config
        self.layout = GUMLayout(
            users=n_users,
            items=n_items,
            attributes=n_attributes,
            hidden=config.hidden,
            slip_and_guess=config.slip_and_guess,
        )
        counts = attributes.sum(axis=1)
        self.items = ItemAttributes(
            indptr=np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts)]),
            attributes=np.nonzero(attributes)[1].astype(np.int64),
        )
        self.link = Link(
            sigmoid=config.link == "sigmoid",
            scale=float(config.scale),
            bent=config.activation == "sigmoid",
            slip_and_guess=config.slip_and_guess,
        )

    def start(self, generator: np.random.Generator) -> FloatArray:
        """Parameters before training: float64[layout.size].

        Tables are drawn in the order of the layout.
        """
        parameters = np.zeros(self.layout.size)
        parts = self.layout.parts(parameters)
        related = self.config.start == "identity"
        gain = math.sqrt(2.0) if related else 1.0
        drawn = [parts.knowledge_user, parts.knowledge_item, parts.hidden[:, None]]
        if related:
            np.fill_diagonal(parts.relation, 1.0)
        else:
            extras = [parts.slip[:, None], parts.guess[:, None]] if len(parts.slip) else []
            drawn = [parts.user_embeddings, parts.item_embeddings, *extras, *drawn]
            drawn.insert(-1, parts.relation)
        for table in drawn:
            bound = gain * math.sqrt(6.0 / sum(table.shape))
            table[...] = generator.uniform(-bound, bound, table.shape)
        return parameters

    def predict(self, parameters: FloatArray, users: IntArray, items: IntArray) -> FloatArray:
        """Predictions of (user, item) pairs: float64[N].

        Raises:
            ValueError: a user or item is not one of the organisation's.
        """
        self.require_known(users, items)
        found = np.empty(len(users))
        predict_pairs(self.model(parameters), users, items, found)
        return found

    def model(self, parameters: FloatArray) -> Model:
        """The model in the form that compiled loops take."""
        return Model(self.layout.parts(parameters), self.items, self.link)

    def characteristics(self, parameters: FloatArray) -> FloatArray:
        """h_u of every user (eq. 8): float64[U, K]."""
        parts = self.layout.parts(parameters)
        return np.asarray(parts.user_embeddings * (parts.knowledge_user @ parts.hidden))

    def require_known(self, users: IntArray, items: IntArray) -> None:
        """Check that pairs name users and items of the organisation.

        Raises:
            ValueError: one does not; a compiled loop would read beyond its tables.
        """
        if len(users) != len(items):
            raise ValueError(f"{len(users)} users for {len(items)} items")
        sizes = (("user", users, self.layout.users), ("item", items, self.layout.items))
        for what, numbers, size in sizes:
            if len(numbers) and not (numbers.min() >= 0 and numbers.max() < size):
                raise ValueError(f"a {what} number is not in 0 to {size - 1}")
