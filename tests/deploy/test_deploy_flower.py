"""Real processes on the loopback address: Flower's SuperLink and SuperNodes, and our sites."""

import json
import os
import signal
import subprocess
import sys
import threading
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("flwr")

from flwr.app import Context, Message
from flwr.supercore.task_identity import TaskIdentity

from audits.config.audit import parse_config
from audits.deploy.homes import Layout
from audits.run.build import build_federation, load_dataset
from secure_fedrec.engines import LocalEngine, table_digest
from secure_fedrec.engines.flower import superlink
from secure_fedrec.engines.flower.message_bytes import ACTION, data_of, message_to
from secure_fedrec.engines.flower.quiet_environment import SWITCHES, require_quiet
from secure_fedrec.engines.flower.scrubbed_replies import scrubbed
from secure_fedrec.engines.flower.tasks import handled
from secure_fedrec.errors import ConfigError, EncodingError, ProtocolError
from secure_fedrec.wire import Meter, Wire
from tests.deploy.grid import context_of

CONFIG = """\
seed = 3
[data]
name = "synthetic"
clients = 3
items = 40
[algorithm]
rounds = 9
[[protection]]
layer = "masking"
adversary = "active"
"""

HOOK = """\
import os, sys
def _seen(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname"):
        place = args[1] if event == "socket.connect" else args[0]
        with open(os.environ["SEEN_ADDRESSES"], "a") as log:
            log.write(f"{place[0] if isinstance(place, tuple) else place}\\n")
sys.addaudithook(_seen)
"""
"""Writes down every address that a Python process connects to or looks up."""


def deployed(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command line and environment of a deployment whose addresses are written down."""
    hook = folder / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    config = folder / "config.toml"
    config.write_text(CONFIG)
    path = os.pathsep.join([str(hook), str(Path(__file__).parents[2])])
    path += os.pathsep + os.environ.get("PYTHONPATH", str(hook))
    seen = {"PYTHONPATH": path, "SEEN_ADDRESSES": str(folder / "addresses")}
    words = [str(Path(sys.executable).with_name("secure-fedrec")), "deploy", str(config), "--quiet"]
    words += ["--log-format", "json", "--metrics", str(folder / "m.prom")]
    return [*words, "--out", str(folder / "out")], {**os.environ, **seen}


def running(folder: Path) -> list[int]:
    """Processes that name the folder on their command line."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line = (place / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line and int(place.name) != os.getpid():
            found.append(int(place.name))
    return found


@pytest.mark.claim("hosts-nothing-leaks-of-failure")
def test_a_masked_round_on_three_supernodes(tmp_path: Path) -> None:
    """Its bits are the embedded engine's, nobody but the loopback address is spoken to, and an
    interrupt of the next round leaves nothing running."""
    command, environment = deployed(tmp_path)
    with subprocess.Popen(  # noqa: S603
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A background job ignores interrupts, and so would what it starts.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # noqa: PLW1509
    ) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert "continue with --resume" in said
    assert "Traceback" not in said
    assert running(tmp_path) == []
    lines = [json.loads(line) for line in said.splitlines()]
    waited = [each for each in lines if each.get("event") == "waiting" and "missing" in each]
    assert [len(waited[0]["missing"]), waited[-1]["missing"]] == [3, []]
    (site,) = events(tmp_path / "out" / "sites" / "0" / "site.log", "round")[:1]
    (server,) = [each for each in lines if each.get("event") == "round"]
    assert (site["round"], site["statement"]) == (1, server["statement"])
    for file in (tmp_path / "m.prom", tmp_path / "out" / "sites" / "0" / "metrics.prom"):
        assert "secure_fedrec_rounds_total 1.0" in file.read_text()
    line = json.loads(first)
    assert line["table"] == after_a_plain_round(tmp_path / "out")
    assert (line["clients"], line["exchanges"]) == (3, 6)  # the first greets the sites
    addresses = set((tmp_path / "addresses").read_text().split())
    assert addresses
    assert addresses <= {"127.0.0.1", "localhost"}


def events(log: Path, event: str) -> list[dict[str, Any]]:
    """Lines of a site's log, every one an object, that tell of an event."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return [line for line in lines if line.get("event") == event]


def after_a_plain_round(root: Path) -> str:
    """Digest of the public table that the embedded engine comes to, without protection.

    It is handed what the sites of the deployment in a folder draw under.
    """
    config = parse_config(
        {key: table for key, table in tomllib.loads(CONFIG).items() if key != "protection"}
    )
    layout = Layout(root)
    secrets = {client: (layout.site(client) / "key").read_bytes() for client in layout.sites()}
    federation = build_federation(config, load_dataset(config, None).task(0)).under(secrets)
    algorithm, problem, _ = federation.task.fresh()
    twin = LocalEngine(
        algorithm=algorithm,
        stack=federation.stack,
        vault=problem.vault,
        n_rows=problem.n_rows,
        streams=federation.streams,
        wire=Wire(meter=Meter(problem.vault.n_clients)),
    )
    twin.run_round()
    return table_digest(twin.public)


@pytest.fixture
def message(monkeypatch: pytest.MonkeyPatch) -> Message:
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    return message_to(7, b"asked", "stage")


@pytest.mark.claim("hosts-nothing-leaks-of-failure")
@pytest.mark.parametrize(
    "failure",
    [
        ProtocolError("user 17 rated 5"),
        EncodingError("user 17 rated 5"),
        ValueError("user 17 rated 5"),
        KeyError("user 17 rated 5"),
    ],
)
def test_nothing_of_a_failure_leaves_a_site(failure: Exception, message: Message) -> None:
    def answer(data: bytes) -> bytes:
        raise failure

    reply = scrubbed(answer, message)
    assert reply.has_error()
    assert reply.error.reason == "client failed"
    assert data_of(reply) is None


@pytest.mark.claim("hosts-nothing-leaks-of-failure")
def test_a_log_tells_of_messages_and_never_of_data(
    message: Message, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(error: Exception) -> Any:
        def answer(data: bytes) -> bytes:
            raise error

        return answer

    scrubbed(failing(ProtocolError("a bad signature")), message)
    scrubbed(failing(EncodingError("17.0 exceeds the clip")), message)
    scrubbed(failing(ZeroDivisionError("17.0 / 0")), message)
    assert "a bad signature" in caplog.text
    assert "17.0" not in caplog.text


@pytest.mark.claim("hosts-nothing-leaks-of-failure")
def test_other_messages_are_not_handled(message: Message) -> None:
    message.metadata.message_type = "train"
    asked: list[Message] = []

    def ours(message: Message, context: Context) -> Message:
        asked.append(message)
        return message

    reply = handled({ACTION: ours}, message, context_of(7, Path(), {}, 1))
    assert reply.has_error()
    assert asked == []


@pytest.mark.claim("hosts-nothing-leaks-of-failure")
@pytest.mark.parametrize("name", SWITCHES)
def test_nothing_begins_while_flower_would_speak_to_others(name: str) -> None:
    require_quiet(SWITCHES)
    for value in ("yes", None):
        environment = {**SWITCHES, **({} if value is None else {name: value})}
        if value is None:
            del environment[name]
        with pytest.raises(ConfigError, match=name):
            require_quiet(environment)


def test_a_link_ends_though_its_connections_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pool that waits for a lock that nobody gives back; what is left ends with the process."""
    monkeypatch.setattr(superlink, "_ENDING", 0.05)
    waiting, given_back, ended = threading.Event(), threading.Event(), threading.Event()

    def close() -> None:
        waiting.set()
        given_back.wait()

    link: Any = superlink.Link.__new__(superlink.Link)
    link._beats, link._grid = None, SimpleNamespace(close=close)
    link._control = SimpleNamespace(close=ended.set)
    link.close()
    assert waiting.is_set()
    assert not ended.is_set()
    given_back.set()
    assert ended.wait(60)
