"""Settings of the HPFL study: its methods, and the grid that each is tuned over.

Every method gets the same number of settings, and the one with the best validation result is
reported. Learning rate, epochs per round and, for FedProx, the strength of the proximal term are
tuned, anew under every start; the form and the start of the user model and the number of rounds
are the same for all methods on it except FedSGD, whose rounds are single steps.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from secure_fedrec.data.organisations.tables import Organisations
from secure_fedrec.errors import ConfigError
from secure_fedrec.models.gum.model import STARTS, GUMConfig
from secure_fedrec.models.gum.training import GUMTraining
from secure_fedrec.settings import Count, NonNegative, Positive, Settings

METHODS: Final = (
    "ncd",
    "ncf",
    "gum",
    "distributed",
    "distributed-early",
    "fedsgd",
    "fedavg",
    "fednoise",
    "fedprox",
    "fedatt",
    "hpfl-k",
    "hpfl-r",
    "hpfl",
)
"""Methods of Table 2, in its order; "distributed" is local training to the last round, and
"distributed-early" the same, with every client keeping its best epoch on validation records."""

VARIANTS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "hpfl-nearer": {"centre_weights": "nearer"},
        "hpfl-stochastic": {"threshold": "stochastic"},
        "hpfl-hidden": {"share_hidden": True},
    }
)
"""HPFL with one setting of ``HPFLConfig`` that the tables do not vary."""

_NETWORKS: Final = ("ncd", "ncf")

OWN_START: Final = "own"
"""The start of NCD and NCF: their own, since they lack the user model's parts."""

FORMS: Final[Mapping[str, GUMConfig]] = MappingProxyType(
    {
        "paper": GUMConfig(activation="identity"),
        "published": GUMConfig(activation="sigmoid"),
    }
)
"""Forms of the user model: as the paper has it, and as its public code has it, with a sigmoid
around the sides of the user and the item. Where training starts is a setting of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One point of a method's grid.

    Args:
        learning_rate: of local training.
        epochs: per round.
        batch_size: records per step; None is all of a client's.
        optimizer: "adam" or "sgd".
        rounds: of training.
        proximal: mu of FedProx.
    """

    learning_rate: float
    epochs: int
    batch_size: int | None
    rounds: int
    optimizer: str = "adam"
    proximal: float = 0.0

    def training(self, *, keep: str, patience: int = 0) -> GUMTraining:
        """The same as settings of a user model's training."""
        own = asdict(self)
        del own["rounds"], own["proximal"]
        return GUMTraining(**own, patience=patience, keep=keep)


class Grid(Settings, section="study.grid"):
    """How widely to tune.

    Args:
        learning_rates: of Adam.
        full_batch_rates: of FedSGD's single gradient steps; as many as there are settings.
        epochs: per round.
        proximal: mu of FedProx; every pair of learning rate and epochs is tried with one of them,
            in turn, so that the number of settings stays the same.
        batch_size: records per step.
        rounds: of federated training.
    """

    learning_rates: tuple[Positive, ...]
    full_batch_rates: tuple[Positive, ...]
    epochs: tuple[Count, ...]
    proximal: tuple[NonNegative, ...]
    batch_size: Count
    rounds: Count


_FILE: Final = Path(__file__).with_name("grids.toml")
GRIDS: Final[Mapping[str, Grid]] = MappingProxyType(
    {name: Grid(**grid) for name, grid in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()}
)
"""Grids by name; the first two are named after the data they were made for."""


def grid_for(data: str) -> str:
    """Name of the grid that was made for the data, or for similar data.

    Raises:
        ConfigError: the data do not have such a grid.
    """
    name = data.removesuffix("-sample")
    if name not in GRIDS:
        raise ConfigError("study.grid", name, "is not the name of a grid", GRIDS)
    return name


def settings_of(method: str, grid: Grid) -> tuple[Setting, ...]:
    """The grid of one method.

    Raises:
        ConfigError: there is no such method.
    """
    if method not in (*METHODS, *VARIANTS):
        raise ConfigError("study.method", method, "unknown method", (*METHODS, *VARIANTS))
    one = partial(Setting, batch_size=grid.batch_size, rounds=grid.rounds)
    pairs = [(rate, epochs) for rate in grid.learning_rates for epochs in grid.epochs]
    if method == "fedsgd":
        # One gradient step is one pass over the records: as many passes as the others make.
        passes = grid.rounds * max(grid.epochs)
        return tuple(
            Setting(learning_rate=rate, epochs=1, batch_size=None, rounds=passes, optimizer="sgd")
            for rate in grid.full_batch_rates
        )
    if method == "fedprox":
        strengths = cycle(grid.proximal)  # every pair once, strengths assigned in turn
        return tuple(
            one(learning_rate=rate, epochs=epochs, proximal=mu)
            for (rate, epochs), mu in zip(pairs, strengths, strict=False)
        )
    return tuple(one(learning_rate=rate, epochs=epochs) for rate, epochs in pairs)


def starts_of(method: str) -> tuple[str, ...]:
    """Starts that a method can be studied under."""
    return (OWN_START,) if method in _NETWORKS else STARTS


def gum_config(organisations: Organisations, *, form: str, start: str) -> GUMConfig:
    """The user model of a study: a sigmoid onto the range of the scores.

    Args:
        organisations: the data.
        form: one of ``FORMS``.
        start: one of ``gum.STARTS``, or ``OWN_START`` for a method that trains another model.

    Raises:
        ConfigError: there is no such start.
    """
    model = replace(FORMS[form], scale=float(organisations.levels[-1]))
    return model if start == OWN_START else replace(model, start=start)
