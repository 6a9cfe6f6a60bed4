"""Lightning modules, real ones and such that only have the methods, and Flower's apps, as steps."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from secure_fedrec.errors import ConfigError
from secure_fedrec.properties import lightning_step
from secure_fedrec.properties.client_step.contents import Sent
from tests.properties.client_zoo import (
    DIM,
    ITEM_TABLE,
    USERS,
    Arguments,
    Scores,
    batches,
    check,
    data,
    first_items,
    seeded,
    verdict,
)
from tests.properties.client_zoo_broken import BIAS

# --- Lightning, by a module that only has its methods ---


class Ducked(nn.Module):
    """What ``lightning_step`` needs of a Lightning module."""

    automatic_optimization = True

    def __init__(self, configured: Any = None) -> None:
        super().__init__()
        self.scores = seeded(Scores)
        self.configured = configured or (
            lambda module: torch.optim.SGD(module.parameters(), lr=0.1)
        )
        self.rates: list[float] = []

    def configure_optimizers(self) -> Any:
        return self.configured(self)

    def training_step(self, batch: Any, number: int) -> Any:
        items, ratings = batch
        return {"loss": nn.functional.mse_loss(self.scores(items), ratings)}


def lightning(configured: Any = None) -> Arguments:
    modules = [Ducked(configured) for _ in range(USERS)]
    items = first_items()

    def given(user: int) -> nn.Module:
        with torch.no_grad():
            modules[user].scores.embedding_item.weight.copy_(items)  # type: ignore[union-attr,operator]
        return modules[user]

    def send(module: nn.Module, _user: int) -> object:
        return {ITEM_TABLE: module.state_dict()[f"scores.{ITEM_TABLE}"]}

    return {
        "train": lightning_step(given, batches, send=send, epochs=2),
        "clients": lambda user: modules[user],
        "private": ("scores.affine_output.*",),
        "uploads": (ITEM_TABLE,),
    }


def sgd(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), lr=0.1)


def scheduled(**how: Any) -> Any:
    def configured(module: nn.Module) -> Any:
        optimizer = sgd(module)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, **how}}

    return configured


def test_a_lightning_module_is_a_step() -> None:
    assert verdict(check(lightning(), 1)) == "holds"
    leaking = lightning()
    sends_all = lightning_step(
        leaking["clients"], batches, send=lambda module, _user: module.state_dict()
    )
    found = check({**leaking, "train": sends_all}, 1)
    assert ("value", f"scores.{BIAS}") in {(each.kind, each.parameter) for each in found.violations}


@pytest.mark.parametrize(
    ("how", "rates"),
    [
        ({"interval": "step"}, [0.1, 0.05, 0.025, 0.0125]),
        ({}, [0.1, 0.1, 0.05, 0.05]),
        ({"interval": "step", "frequency": 2}, [0.1, 0.1, 0.05, 0.05]),
        ({"frequency": 2}, [0.1, 0.1, 0.1, 0.1]),
    ],
)
def test_schedules_advance_as_lightnings_do(how: Arguments, rates: list[float]) -> None:
    seen: list[float] = []

    class Noting(Ducked):
        def on_train_batch_start(self, _batch: Any, _number: int) -> None:
            seen.append(self.optimizer.param_groups[0]["lr"])

        def configure_optimizers(self) -> Any:
            given = super().configure_optimizers()
            self.optimizer = given["optimizer"]
            return given

    lightning_step(Noting(scheduled(**how)), batches, send=lambda *_: None, epochs=2)(0)
    assert seen == pytest.approx(rates)


def several(module: nn.Module) -> Any:
    return [sgd(module), sgd(module)]


def watching(module: nn.Module) -> Any:
    optimizer = sgd(module)
    return [optimizer], [torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)]


def test_what_lightning_would_not_step_by_itself_is_refused() -> None:
    by_hand = Ducked()
    by_hand.automatic_optimization = False
    for module in (Ducked(several), Ducked(watching), Ducked(lambda _: [None]), by_hand):
        with pytest.raises(ConfigError):
            lightning_step(module, batches, send=lambda *_: None)(0)


def configured_ways() -> Iterator[Any]:
    yield sgd
    yield lambda module: [sgd(module)]
    yield lambda module: ([sgd(module)], [])
    yield lambda module: {"optimizer": sgd(module)}
    yield lambda module: [{"optimizer": sgd(module)}]
    yield lambda module: ([o := sgd(module)], [torch.optim.lr_scheduler.ConstantLR(o, factor=1.0)])


def test_optimisers_come_in_all_forms_that_lightning_takes() -> None:
    ends = set()
    for way in configured_ways():
        module = Ducked(way)
        lightning_step(module, batches, send=lambda *_: None)(0)
        ends.add(tuple(module.scores.state_dict()["affine_output.weight"].flatten().tolist()))
    assert len(ends) == 1


@pytest.mark.filterwarnings("ignore")
def test_a_real_lightning_module_trains_as_under_its_trainer() -> None:
    pytest.importorskip("lightning")
    import lightning as real  # type: ignore[import-not-found,unused-ignore]

    class Real(real.LightningModule):  # type: ignore[misc,unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.scores = seeded(Scores)

        configure_optimizers = scheduled(interval="step")

        def training_step(self, batch: Any, number: int) -> Tensor:
            items, ratings = batch
            loss = nn.functional.mse_loss(self.scores(items), ratings)
            self.log("loss", loss)
            return loss

    ours, theirs = Real(), Real()
    lightning_step(ours, batches, send=lambda *_: None, epochs=2)(1)
    trainer = real.Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(theirs, DataLoader(batches(1), batch_size=None))  # type: ignore[arg-type]
    for name, value in theirs.state_dict().items():
        assert torch.equal(value, ours.state_dict()[name]), name


# --- Flower ---


def asked(content: Any, user: int) -> Any:
    """A message to train."""
    from flwr.app import Message, Metadata

    metadata = Metadata(
        run_id=0,
        message_id="",
        src_node_id=0,
        dst_node_id=user,
        reply_to_message_id="",
        group_id="",
        created_at=0.0,
        ttl=1e12,
        message_type="train",
    )
    return Message(content, metadata=metadata)  # type: ignore[call-overload]


def test_a_flower_app_is_a_step_and_its_context_a_state() -> None:
    pytest.importorskip("flwr")
    from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()
    leaks = False

    @app.train()  # type: ignore[untyped-decorator, unused-ignore]
    def train(message: Any, context: Any) -> Any:
        items = message.content["model"]["items"].numpy().copy()
        own = context.state["own"]["vector"].numpy().copy()
        places, ratings = (each.numpy() for each in data(int(context.node_id)))
        for place, rating in zip(places, ratings, strict=True):
            error, item = items[place] @ own - rating, items[place].copy()
            items[place] -= 0.05 * error * own
            own -= 0.05 * error * item
        context.state["own"] = ArrayRecord({"vector": array(own)})
        sent = np.concatenate([items, own[None]]) if leaks else items
        record = {"model": ArrayRecord({"items": array(sent)})}
        content = RecordDict({**record, "metrics": MetricRecord({"examples": len(places)})})
        return Message(content, reply_to=message)

    def array(values: Any) -> Any:
        from flwr.app import Array

        return Array(values)

    contexts = {
        user: Context(
            run_id=1,
            node_id=user,
            node_config={},
            state=RecordDict({"own": ArrayRecord({"vector": array(np.ones(DIM, np.float32))})}),
            run_config={},
        )
        for user in range(USERS)
    }

    def message(user: int) -> Any:
        model = ArrayRecord({"items": array(first_items().numpy())})
        content = RecordDict({"model": model, "config": ConfigRecord({"lr": 0.1})})
        return asked(content, user)

    given: Arguments = {
        "train": lambda user: app(message(user), contexts[user]),
        "clients": lambda user: contexts[user].state,
        "private": ("own.*",),
        "uploads": ("items", "examples"),
    }
    assert verdict(check(given, 1)) == "holds"
    leaks = True
    assert {(v.kind, v.parameter) for v in check(given, 1).violations} == {("value", "own.vector")}


def test_flowers_parameters_are_read() -> None:
    pytest.importorskip("flwr")
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters

    parameters = ndarrays_to_parameters([np.ones(2), np.zeros(3)])
    sent = Sent.of(FitRes(Status(Code.OK, "fine"), parameters, 8, {"loss": 0.5}))
    assert list(sent.numbers) == [
        "status.code.value",
        "parameters.0",
        "parameters.1",
        "num_examples",
        "metrics.loss",
    ]
    assert not sent.unknown


def test_a_flower_client_that_failed_has_sent_nothing_known() -> None:
    pytest.importorskip("flwr")
    from flwr.app import Error, Message, RecordDict

    failed = Message(Error(code=1), reply_to=asked(RecordDict(), 1))
    assert Sent.of(failed).unknown == {"error": "object"}
