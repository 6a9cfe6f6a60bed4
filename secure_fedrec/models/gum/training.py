"""Local training of GUM at one organisation: epochs of batches, early stopping, the best kept.

The loss is the mean squared error of the predictions. Records are visited in a fresh random order
every epoch, the last batch may be short, and the optimiser starts anew in every call, as a client
of a round does. A validation part, which is not trained on, determines when to stop and which epoch
to keep; the parameters a call starts from are a candidate too, so training never makes them worse
on it.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.models.gum.arrays import Descent, Moments, Pull, Records
from secure_fedrec.models.gum.loops import run_epoch
from secure_fedrec.models.gum.model import GUM
from secure_fedrec.settings import Count, Natural, OneOf, Positive, Settings, Unit

_OPTIMIZERS = ("adam", "sgd")
_KEEP = ("best", "last")


class GUMTraining(Settings, section="training"):
    """How an organisation trains.

    Args:
        optimizer: "adam" or "sgd".
        learning_rate: step size of the optimiser.
        batch_size: size of a step's batch.
        epochs: most passes over the records.
        patience: without a better validation error for so long, training ends; 0 never
            stops early.
        keep: "best" keeps the parameters of the smallest validation error, "last" the last.

    Raises:
        ConfigError: a field is out of range.
    """

    optimizer: Annotated[str, OneOf(_OPTIMIZERS)] = "adam"
    learning_rate: Positive = 1e-3
    batch_size: Annotated[Count, Unit("records")] | None = 32
    epochs: Annotated[Count, Unit("epochs")] = 5
    patience: Annotated[Natural, Unit("epochs")] = 5
    keep: Annotated[str, OneOf(_KEEP)] = "best"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """The result of local training.

    Args:
        parameters: float64[P], those kept.
        epochs: passes over the records that were made.
        kept: the epoch whose parameters these are; 0 is before training.
        errors: float64[epochs + 1], mean squared validation error before training and after every
            epoch; NaN without a validation part.
    """

    parameters: FloatArray
    epochs: int
    kept: int
    errors: FloatArray


def train(
    gum: GUM,
    parameters: FloatArray,
    records: Records,
    validation: Records,
    config: GUMTraining,
    generator: np.random.Generator,
    *,
    pull: Pull | None = None,
) -> Trained:
    """Train a copy of the parameters.

    Args:
        gum: the organisation's model.
        parameters: float64[P], to start from; not changed.
        records: to learn from, at least one.
        validation: to stop by; may be empty if the last epoch is kept and patience is 0.
        config: settings.
        generator: orders the records.
        pull: a proximal term (FedProx).

    Raises:
        ValueError: a record is not one of the organisation's, or records to learn from are missing,
            or records to validate by where they are needed.
    """
    for each in (records, validation):
        gum.require_known(each.users, each.items)
    if not len(records.scores):
        raise ValueError("records to learn from are missing")
    if not len(validation.scores) and (config.keep == "best" or config.patience):
        raise ValueError("early stopping needs a validation record")
    moved, best, size = parameters.copy(), parameters.copy(), len(records.scores)
    descent, model = _descent(gum, moved, config, pull), gum.model(moved)
    slopes = gum.layout.parts(descent.gradient)
    rate, batch = float(config.learning_rate), config.batch_size or size
    errors = [_squared_error(gum, parameters, validation)]
    kept = steps = 0
    while len(errors) <= config.epochs:
        order = generator.permutation(size)
        steps = run_epoch(descent, model, slopes, records, order, rate, batch, steps)
        errors.append(_squared_error(gum, moved, validation))
        epoch = len(errors) - 1
        if config.keep == "last" or errors[-1] < errors[kept]:
            kept = epoch
            best[:] = moved
        if config.patience and epoch - int(np.nanargmin(errors)) >= config.patience:
            break
    return Trained(parameters=best, epochs=len(errors) - 1, kept=kept, errors=np.array(errors))


def _descent(gum: GUM, parameters: FloatArray, config: GUMTraining, pull: Pull | None) -> Descent:
    """Parameters, which are trained in place, and the optimiser's state before the first step."""
    size, nothing, adam = gum.layout.size, np.empty(0), config.optimizer == "adam"
    pull = Pull(strengths=nothing, anchor=nothing) if pull is None else pull
    first, second = (np.zeros(size if adam else 0) for _ in range(2))
    return Descent(
        parameters=parameters,
        gradient=np.zeros(size),
        moments=Moments(first=first, second=second, moving=_pulled_rows(gum, pull)),
        pull=pull,
        adam=adam,
    )


def _pulled_rows(gum: GUM, pull: Pull) -> BoolArray:
    """bool[U + I], embeddings that the proximal term alone can move."""
    rows = gum.layout.users + gum.layout.items
    if not len(pull.strengths):
        return np.zeros(rows, dtype=np.bool_)
    own = pull.strengths[: rows * gum.layout.attributes]
    return np.asarray(own.reshape(rows, -1).any(axis=1))


def _squared_error(gum: GUM, parameters: FloatArray, records: Records) -> float:
    if not len(records.scores):
        return math.nan
    found = gum.predict(parameters, records.users, records.items)
    return float(np.mean((found - records.scores) ** 2))
