"""What a protected Flower app keeps in its ``Context``: it moves with the client's own reveal."""

from collections.abc import Sequence
from itertools import count
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from secure_fedrec.engines.flower.message_bytes import RECORD
from secure_fedrec.engines.flower.mod import ProtectedMod
from secure_fedrec.engines.flower.strategy import ProtectedStrategy
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking.envelope import VERSION, Kind
from secure_fedrec.protection.means import MaskedMean
from tests.deploy.grid import MemoryGrid, context_of
from tests.deploy.test_deploy_foreign import (
    CLIENTS,
    _flower,  # noqa: F401 - a fixture
    fedavg,
    keys,  # noqa: F401 - a fixture
)

ACTIVE = MaskedMean(clip=64.0, max_weight=1, corrupt=0.25, dropout=0.25)
CURIOUS = MaskedMean(clip=64.0, max_weight=1, corrupt=0.25, dropout=0.25, adversary="curious")
TERMS = {"active": ACTIVE, "curious": CURIOUS}
STARTS = count(1)
"""Clients answer for one model once, so every run begins with another."""


def counting(terms: MaskedMean, *, bound_anew: bool = False, name: str = "n") -> ClientApp:
    """Moves the model by how often it has trained, as it remembers."""
    app = ClientApp(mods=[ProtectedMod(terms)])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        before = context.state.config_records.get(name, ConfigRecord({"n": 0}))["n"]
        assert isinstance(before, int)
        after = ConfigRecord({"n": before + 1})
        if bound_anew:
            context.state = RecordDict({name: after})
        else:
            context.state[name] = after
        moved = ArrayRecord({"w": Array(np.full(2, float(before + 1)))})
        figures = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": moved, "metrics": figures}), reply_to=message)

    return app


def grid_of(app: ClientApp, folder: Path) -> MemoryGrid:
    contexts = {node: context_of(node, folder / str(node), {}, CLIENTS) for node in range(CLIENTS)}
    return MemoryGrid(dict.fromkeys(range(CLIENTS), app), contexts)


def remembered(grid: MemoryGrid) -> list[int]:
    """What each client's next training would begin with."""
    found = []
    for node in range(CLIENTS):
        record = grid.contexts[node].state.config_records.get("n")
        known = 0 if record is None else record["n"]
        assert isinstance(known, int)
        found.append(known)
    return found


def masked(message: Message) -> Kind | None:
    """Which of the masks' messages it is."""
    data = message.content.config_records[RECORD]["data"]
    assert isinstance(data, bytes)
    return Kind(data[1]) if data[0] == VERSION else None


def run(app: ClientApp, folder: Path, terms: MaskedMean, grid: MemoryGrid, rounds: int = 1) -> None:
    strategy = ProtectedStrategy(fedavg(fraction_evaluate=0.0), terms, folder / "server")
    start = ArrayRecord({"w": Array(np.full(2, next(STARTS) / 1024))})
    strategy.start(grid, start, num_rounds=rounds, timeout=0.05)


@pytest.mark.parametrize("adversary", TERMS)
@pytest.mark.parametrize("bound_anew", [False, True])
def test_an_apps_state_lasts(
    adversary: str,
    bound_anew: bool,
    keys: Path,  # noqa: F811 - a fixture
) -> None:
    terms = TERMS[adversary]
    app = counting(terms, bound_anew=bound_anew)
    grid = grid_of(app, keys)
    run(app, keys, terms, grid, rounds=3)
    assert remembered(grid) == [3] * CLIENTS
    assert all(list(context.state) == ["n"] for context in grid.contexts.values())


@pytest.mark.parametrize("adversary", TERMS)
@pytest.mark.parametrize("gone", [{2}, {0, 1, 2, 3}], ids=str)
def test_a_round_that_a_client_did_not_open_leaves_its_apps_state(
    adversary: str,
    gone: set[int],
    keys: Path,  # noqa: F811
) -> None:
    """A server can withhold what it likes: no two clients' states differ by more than their part
    in a sum."""
    terms = TERMS[adversary]
    app = counting(terms)
    grid = grid_of(app, keys)
    run(app, keys, terms, grid)
    last = Kind.QUORUM if adversary == "active" else Kind.SURVIVORS

    def withheld(message: Message) -> Sequence[Message]:
        lost = masked(message) is last and message.metadata.dst_node_id in gone
        return [] if lost else [message]

    grid.out = withheld
    if len(gone) == CLIENTS:
        with pytest.raises(ProtocolError):
            run(app, keys, terms, grid)
    else:
        run(app, keys, terms, grid)
    expected = [1 if node in gone else 2 for node in range(CLIENTS)]
    assert remembered(grid) == expected
    grid.out = lambda message: [message]
    run(app, keys, terms, grid)
    assert remembered(grid) == [each + 1 for each in expected]


def test_a_reveal_that_is_given_again_moves_nothing(keys: Path) -> None:  # noqa: F811
    """Of another round than the one whose state waits."""
    app = counting(ACTIVE)
    grid = grid_of(app, keys)
    asked: dict[int, bytes] = {}

    def again(message: Message) -> Sequence[Message]:
        node, record = message.metadata.dst_node_id, message.content.config_records[RECORD]
        stage = masked(message)
        if stage is Kind.QUORUM:
            asked[node] = record["data"]  # type: ignore[assignment]
        if stage is Kind.KEYS and node in asked:
            record["data"] = asked[node]
        return [message]

    grid.out = again
    run(app, keys, ACTIVE, grid)
    with pytest.raises(ProtocolError):
        run(app, keys, ACTIVE, grid)
    given = [reply for reply in grid.seen[-CLIENTS:] if bytes([VERSION, Kind.REVEAL]) in reply]
    assert len(given) == CLIENTS
    assert remembered(grid) == [1] * CLIENTS


def test_names_that_are_kept_are_refused(keys: Path, caplog: pytest.LogCaptureFixture) -> None:  # noqa: F811
    app = counting(ACTIVE, name="secure-fedrec.waiting.n")
    grid = grid_of(app, keys)
    with pytest.raises(ProtocolError):
        run(app, keys, ACTIVE, grid)
    assert "must not begin with" in caplog.text
