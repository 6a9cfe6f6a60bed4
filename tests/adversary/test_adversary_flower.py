"""What a SuperLink tells some clients of a protected app and not others is in no sum.

Fields are drawn from Flower's own message, its metadata and context: one that joins them is covered
by being there. Whatever differs, all clients in a sum were given the same to compute from. The
server takes part: it signs for every client what that client was told, and looks at nothing.
"""

import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.app.metadata import Metadata
from flwr.clientapp import ClientApp
from flwr.supercore.task_identity import TaskIdentity
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from secure_fedrec.engines.distributed.host_messages import Agreement, Kind
from secure_fedrec.engines.distributed.mean_coordinator import MeanCoordinator
from secure_fedrec.engines.distributed.mean_site import Keys, request, standing
from secure_fedrec.engines.flower.message_bytes import RECORD, data_of, record_of
from secure_fedrec.engines.flower.mod import ProtectedMod
from secure_fedrec.engines.flower.model_records import agreed_message, task_of, told_digest
from secure_fedrec.engines.flower.quiet_environment import SWITCHES
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import Role
from secure_fedrec.protection.session.journal_entries import Entries
from secure_fedrec.protection.session.statement import Statement
from tests.deploy.grid import MemoryGrid, context_of
from tests.deploy.keys import give_keys
from tests.deploy.test_deploy_foreign import TERMS, App, fedavg, protected

CLIENTS = range(4)
RUN = {"rate": 0.5, "epochs": 1}
OWN = {"node_config", "state"}
"""Of a context what its own host gives, and what its client keeps."""

Told = tuple[Message, Context]


def other(value: Any) -> Any:
    """Another value, whatever its type."""
    match value:
        case str():
            return f"{value}.o"
        case bool() | int() | float():
            return value + 1
        case None:
            return 1
        case dict():
            return {**value, "rate": 0.0}
    raise TypeError(f"say here how a {type(value).__name__} becomes another one")


def metadata(name: str) -> Callable[[Message, Context], Told]:
    def change(message: Message, context: Context) -> Told:
        setattr(message.metadata, f"_{name}", other(getattr(message.metadata, name)))
        return message, context

    return change


def context(name: str) -> Callable[[Message, Context], Told]:
    return lambda message, own: (message, replace(own, **{name: other(getattr(own, name))}))


def content(change: Callable[[RecordDict], None]) -> Callable[[Message, Context], Told]:
    def changed(message: Message, own: Context) -> Told:
        change(message.content)
        return message, own

    return changed


def model(found: RecordDict) -> None:
    values = found.array_records["arrays"]["w"].numpy()
    found.array_records["arrays"]["w"] = Array(np.nextafter(values, np.float32(9)))


def setting(found: RecordDict) -> None:
    found.config_records["config"]["rate"] = 0.0


def more_settings(found: RecordDict) -> None:
    found.config_records["config"]["more"] = b"x"


def figures(found: RecordDict) -> None:
    found["figures"] = MetricRecord({"rate": 0.0})


def name_of_settings(found: RecordDict) -> None:
    found["settings"] = found.config_records.pop("config")


CHANGES: dict[str, Callable[[Message, Context], Told]] = {
    **{f"metadata.{n}": metadata(n) for n in signature(Metadata).parameters},
    **{f"context.{f.name}": context(f.name) for f in fields(Context) if f.name not in OWN},
    **{
        f"content: {each.__name__}": content(each)
        for each in (model, setting, more_settings, figures, name_of_settings)
    },
}


def read(content: RecordDict) -> list[Any]:
    """All that an app reads of records, in order."""
    return [
        (name, type(record), [(key, repr(vars(each) if isinstance(each, Array) else each))])
        for name, record in content.items()
        for key, each in record.items()
    ]


class Deviating:
    """A federation whose server and SuperLink tell some clients something else.

    Args:
        folder: of the keys.
        change: what they are told otherwise.
        others: who.
    """

    def __init__(
        self, folder: Path, change: Callable[[Message, Context], Told], others: set[int]
    ) -> None:
        give_keys(folder, len(CLIENTS))
        self._folder, self._change, self._others = folder, change, others
        self.given: dict[int, list[Any]] = {}
        keys = Keys(folder / "server")
        self._agreement = Agreement(digest=TERMS.digest, roster=keys.roster())
        self._identity = keys.identity(Role.SERVER, keys.roster())
        self._app = self._protected()

    def run(self) -> list[int]:
        """Clients in the sum of a round; none where it is given up."""
        contexts = {n: context_of(n, self._folder / str(n), RUN, len(CLIENTS)) for n in CLIENTS}
        apps: Any = dict.fromkeys(CLIENTS, self._asked)
        grid = MemoryGrid(apps, contexts)
        strategy = protected(App(), self._folder, fedavg(fraction_evaluate=0.0))
        start = ArrayRecord({"w": Array(np.ones(3, dtype=np.float32))})
        try:
            strategy.start(
                grid,
                start,
                num_rounds=1,
                timeout=0.05,  # of a reply that names another message; all others are there at once
                train_config=ConfigRecord({"rate": 0.5}),
            )
        except ProtocolError:
            return []
        found: list[int] = strategy.reports[0].clients.tolist()
        return found

    def revealed(self) -> set[int]:
        """Who has helped to open a sum, by the journals on disk; one that was refused has none."""
        found = set()
        for path in self._folder.glob("*/state/journal"):
            entries = Entries.decode(path.read_bytes()[:-32])
            assert entries is not None
            found |= {int(path.parts[-3])} if entries.revealed else set()
        return found

    def _asked(self, message: Message, own: Context) -> Message:
        client = int(own.node_config["partition-id"])
        if client in self._others and "arrays" in message.content:
            message, own = self._change(message, own)
            data = data_of(message)
            assert data is not None
            _, body = self._agreement.open(data, Kind.REQUEST)
            size = int.from_bytes(body[:4], "little")
            stated, setup = Statement.decode(body[4 : 4 + size]), body[4 + size :]
            try:
                stated = self._stated(stated, message, own, client)
            except (ProtocolError, ValueError):
                return self._app(message, own)  # no model that a statement could be made of
            signed = self._agreement.seal(
                Kind.REQUEST, request(stated.encoded, setup), by=self._identity
            )
            message.content[RECORD] = record_of(signed)
        return self._app(message, own)

    def _stated(self, stated: Statement, message: Message, own: Context, client: int) -> Statement:
        """The statement that this client makes itself, whatever it was told."""
        task = task_of(agreed_message(message, client), lambda _: None)  # type: ignore[arg-type,return-value]
        found = standing(
            self._agreement,
            serial=stated.round,
            clients=np.array(CLIENTS),
            task=task,
            shared=TERMS.select(task.model),
            instructions=told_digest(own.run_config),
        )
        return found.statement.known

    def _protected(self) -> ClientApp:
        app = ClientApp(mods=[ProtectedMod(TERMS)])

        @app.train()
        def train(message: Message, own: Context) -> Message:
            client = int(own.node_config["partition-id"])
            plain = {
                name: getattr(message.metadata, name)
                for name in signature(Metadata).parameters
                if name != "dst_node_id"  # in its place the client's number
            }
            told = [plain, own.run_id, own.run_config, read(message.content)]
            self.given[client] = told
            sent = message.content.array_records["arrays"]
            trained = {name: Array(2 * each.numpy()) for name, each in sent.items()}
            figures = MetricRecord({"num-examples": 1})
            made = RecordDict({"arrays": ArrayRecord(trained), "metrics": figures})
            return Message(made, reply_to=message)

        return app


@pytest.fixture(autouse=True)
def _deviating(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The server overlooks that clients compute by other settings."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # nothing here loses power
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    for switch, value in SWITCHES.items():
        monkeypatch.setenv(switch, value)
    greet = MeanCoordinator._greet

    def overlooking(self: MeanCoordinator, *given: Any) -> int:
        took = greet(self, *given)
        self._instructions = dict.fromkeys(self._instructions, self._instructions[0])
        return took

    monkeypatch.setattr(MeanCoordinator, "_greet", overlooking)
    yield


def test_the_example_is_summed(tmp_path: Path) -> None:
    """Or what follows would show nothing."""
    ran = Deviating(tmp_path, lambda message, own: (message, own), {*CLIENTS})
    assert ran.run() == [*CLIENTS]
    assert ran.revealed() == {*CLIENTS}
    assert len({str(ran.given[client]) for client in CLIENTS}) == 1


@pytest.mark.claim("flower-one-mean")
@pytest.mark.parametrize("field", CHANGES)
@hypothesis_settings(max_examples=2, deadline=None)
@given(others=st.sets(st.sampled_from(CLIENTS), min_size=1, max_size=3))
def test_who_is_in_a_sum_was_given_the_same(field: str, others: set[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        ran = Deviating(Path(folder), CHANGES[field], others)
        summed = ran.run()
        given = [ran.given[client] for client in summed]
        assert all(each == given[0] for each in given)
        assert ran.revealed() <= set(summed)
        told = {str(ran.given[client]) for client in ran.given}
        if len(told) > 1:
            assert set(summed) <= set(CLIENTS) - others
