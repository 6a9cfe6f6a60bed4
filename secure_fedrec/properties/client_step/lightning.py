"""A client's step made from a Lightning module, which is recognised by its methods."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from secure_fedrec.errors import ConfigError


def lightning_step(
    module: Any,
    batches: Callable[[Any], Iterable[Any]],
    *,
    send: Callable[[Any, Any], object],
    epochs: int = 1,
) -> Callable[[Any], object]:
    """Make a step that trains as Lightning's automatic optimisation does, and then sends.

    Args:
        module: a Lightning module, or a function from a user to that client's.
        batches: user -> the batches of an epoch.
        send: (module, user) -> what is sent after training.
        epochs: how many.

    Returns:
        A function for ``check_client_step``: user -> what was sent.

    Raises:
        ConfigError: the module optimises by hand, has several optimisers or a schedule that
            watches a metric: write a function that calls a ``Trainer``.
    """
    by_user = not hasattr(module, "configure_optimizers")

    def train(user: Any) -> object:
        found = module(user) if by_user else module
        _fit(found, batches, user, epochs)
        return send(found, user)

    return train


def _fit(module: Any, batches: Callable[[Any], Iterable[Any]], user: Any, epochs: int) -> None:
    optimizer, schedules = _configured(module)
    module.train()
    _call(module, "on_fit_start")
    _call(module, "on_train_start")
    for epoch in range(epochs):
        _call(module, "on_train_epoch_start")
        for number, batch in enumerate(batches(user)):
            _call(module, "on_train_batch_start", batch, number)
            out = _optimise(module, optimizer, batch, number)
            _advance(schedules, "step", number + 1)
            _call(module, "on_train_batch_end", out, batch, number)
        _call(module, "on_train_epoch_end")
        _advance(schedules, "epoch", epoch + 1)
    _call(module, "on_train_end")


def _optimise(module: Any, optimizer: Any, batch: Any, number: int) -> Any:
    out: Any = None

    def closure() -> Any:
        nonlocal out
        out = module.training_step(batch, number)
        loss = out["loss"] if isinstance(out, Mapping) else out
        optimizer.zero_grad()
        if loss is not None:  # Lightning skips such a batch
            loss.backward()
        return loss

    optimizer.step(closure)
    return out


def _configured(module: Any) -> tuple[torch.optim.Optimizer, list[Mapping[str, Any]]]:
    """The optimiser of a module and its schedules, in any form that Lightning takes."""
    given = module.configure_optimizers()
    several = isinstance(given, (list, tuple))
    pair = several and len(given) == 2 and all(isinstance(each, (list, tuple)) for each in given)
    optimizers, schedules = given if pair else (given if several else [given], [])
    if len(optimizers) != 1 or not getattr(module, "automatic_optimization", True):
        problem = "must have one optimiser, stepped automatically: call a Trainer in your function"
        raise ConfigError("module", type(module).__name__, problem)
    (optimizer,) = optimizers
    if isinstance(optimizer, Mapping):
        schedules = [optimizer[key] for key in ("lr_scheduler",) if key in optimizer]
        optimizer = optimizer["optimizer"]
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ConfigError("module", type(module).__name__, "gives no optimiser")
    found = [each if isinstance(each, Mapping) else {"scheduler": each} for each in schedules]
    if any(isinstance(each["scheduler"], ReduceLROnPlateau) for each in found):
        raise ConfigError("module", type(module).__name__, "has a schedule that watches a metric")
    return optimizer, found


def _advance(schedules: Iterable[Mapping[str, Any]], interval: str, number: int) -> None:
    for each in schedules:
        if each.get("interval", "epoch") == interval and not number % each.get("frequency", 1):
            each["scheduler"].step()


def _call(module: Any, hook: str, *given: Any) -> None:
    method = getattr(module, hook, None)
    if callable(method):
        method(*given)
