"""Mixes as processes of their own: cells over TCP."""

import json
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audits.command_line import parse
from audits.deploy import mix as mix_process
from audits.deploy import site
from audits.deploy.mix import addresses, main, operator_of
from secure_fedrec.engines.cascade import Inlet, Mix, hand_in, load_directory, save_directory
from secure_fedrec.engines.flower.processes import Running, free_ports, stop_all
from secure_fedrec.errors import ConfigError, DataError, HostError
from secure_fedrec.protection.routing import (
    KEMS,
    Directory,
    Endpoint,
    MixNode,
    OpeningKey,
    RoutingConfig,
    SealingKey,
    SentCells,
    new_identity,
    receipt_digest,
    send,
)
from secure_fedrec.protection.routing.fragments import Kind, cover
from secure_fedrec.protection.routing.onions import draw_path, wrap

HERE = "127.0.0.1"
KEM = KEMS["x25519"]
SENDERS, CELLS = 4, 2
SETTINGS = RoutingConfig(layers=3, cell_bytes=1024, min_batch=SENDERS * CELLS)


def directory_of(publics: list[SealingKey]) -> Directory:
    *mixes, recipient = publics
    return Directory(
        config=SETTINGS, epoch=1, mixes=tuple((each,) for each in mixes), recipients=(recipient,)
    )


@contextmanager
def receiving(
    directory: Directory, key: OpeningKey
) -> Iterator[tuple[Inlet, Endpoint, list[bytes]]]:
    endpoint = Endpoint(layers=3, index=0)
    endpoint.rotate(directory, key)
    got: list[bytes] = []

    def take(cell: bytes) -> None:
        if (message := endpoint.receive(cell)) is not None:
            got.append(message)

    inlet = Inlet((HERE, 0), SETTINGS.size_at(3), take)
    try:
        yield inlet, endpoint, got
    finally:
        inlet.close()


def until(condition: object, what: str) -> None:
    end = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, what
        time.sleep(0.02)


def handed_in(directory: Directory, entry: tuple[str, int]) -> list[SentCells]:
    """Every sender's vectors, through the cascade."""
    noted = []
    for sender in range(SENDERS):
        sent = SentCells(directory, batch=1)
        cells = send(
            [bytes([sender]) * 600], recipient=0, cells=CELLS, directory=directory, sent=sent
        )
        hand_in(cells, entry)
        noted.append(sent)
    return noted


def test_a_bag_goes_through_three_processes(tmp_path: Path) -> None:
    """What arrives is the multiset of what was sent, and every sender finds its own."""
    operator, own = Ed25519PrivateKey.generate(), OpeningKey.generate(KEM)
    (tmp_path / "operator.pub").write_text(operator.public_key().public_bytes_raw().hex())
    ports = free_ports(3)
    with ExitStack() as ending:
        processes: list[Running] = []
        ending.callback(lambda: stop_all(processes))
        for layer, port in enumerate(ports):
            command = [sys.executable, "-m", "audits.deploy.mix", str(tmp_path)]
            command += ["--layer", str(layer), "--listen", f"{HERE}:{port}"]
            processes.append(Running(f"mix {layer}", command, tmp_path / f"{layer}.log", {}))
        keys = [tmp_path / "keys" / f"{layer}-0" for layer in range(3)]
        until(lambda: all(key.exists() for key in keys), "mixes show no keys")
        directory = directory_of([*(SealingKey(KEM, key.read_bytes()) for key in keys), own.public])
        inlet, endpoint, got = ending.enter_context(receiving(directory, own))
        places = [*((HERE, port) for port in ports), inlet.address]
        named = {f"{layer}-0": f"{host}:{port}" for layer, (host, port) in enumerate(places)}
        (tmp_path / "addresses.json").write_text(json.dumps(named))
        save_directory(directory, tmp_path / "directory", operator)
        noted = handed_in(directory, places[0])
        until(lambda: len(got) == SENDERS, "the bag is not full")
        assert sorted(got) == [bytes([sender]) * 600 for sender in range(SENDERS)]
        assert endpoint.dummies == SENDERS * (CELLS - 1)
        signing = new_identity()
        receipt = endpoint.receipt(batch=1, identity=signing)
        for sent in noted:
            sent.require_received(
                [receipt],
                signers=[signing.public_key().public_bytes_raw()],
                published=[receipt_digest(receipt)],
            )


def test_a_cell_that_is_wrong_at_its_end_costs_nobody_else_a_vector() -> None:
    """It is a loop that the recipient has not sent, and nothing is wrong with it before."""
    keys = [OpeningKey.generate(KEM) for _ in range(4)]
    directory = directory_of([key.public for key in keys])
    with ExitStack() as ending:
        inlet, _, got = ending.enter_context(receiving(directory, keys[3]))
        following = inlet.address
        for layer in (2, 1, 0):
            node = MixNode(layer=layer, node=0)
            node.rotate(directory, keys[layer])
            mix = Mix(
                node, layer=layer, directory=directory, listen=(HERE, 0), addresses={0: following}
            )
            ending.callback(mix.close)
            following = mix.inlet.address
        loops = [
            wrap(cover(Kind.LOOP), path=draw_path(directory), recipient=0, directory=directory)
            for _ in range(CELLS)
        ]
        hand_in(loops, following)
        vectors = [bytes([sender]) * 600 for sender in range(SENDERS - 1)]  # and a batch is full
        for vector in vectors:
            hand_in(send([vector], recipient=0, cells=CELLS, directory=directory), following)
        until(lambda: len(got) == len(vectors), "vectors are missing")
        assert sorted(got) == vectors


def test_the_example_checks_itself(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "examples" / "deploy" / "cascade.py"
    ports = [f"{HERE}:{port}" for port in free_ports(2)]
    mix = [sys.executable, "-m", "audits.deploy.mix", str(tmp_path), "--layer", "0"]
    running = Running("mix", [*mix, "--listen", ports[0]], tmp_path / "log", {})
    try:
        words = [sys.executable, "-W", "error", str(program), str(tmp_path), ports[0], "--listen"]
        ended = subprocess.run([*words, ports[1]], capture_output=True, text=True, check=False)  # noqa: S603
    finally:
        running.stop()
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "5 vectors without a sender, through 1 processes\n"


def commands_of(service: Mapping[str, Any]) -> list[str]:
    return shlex.split(service["command"])


def test_containers_are_started_with_words_that_programs_take() -> None:
    """And each sees the folders of its own party alone."""
    place = Path(__file__).parents[2] / "examples" / "deploy" / "compose.yaml"
    services = yaml.safe_load(place.read_text())["services"]
    for name, service in services.items():
        command = commands_of(service)
        if command[0] == "secure-fedrec":
            assert parse(command[1:]).superlink == "superlink:8000"
        elif command[:2] == ["python", "-m"]:
            module = {"audits.deploy.site": site, "audits.deploy.mix": mix_process}[command[2]]
            module.parser().parse_args(command[3:])
        else:
            program = Path(command[1]).name if command[0] in ("sh", "python") else command[0]
            assert program == "flower-superlink" or (place.parent / program).is_file()
        own = {"sites" in volume for volume in service["volumes"]}
        assert (True in own) == name.startswith("site-")
        if name.startswith("site-"):
            number = name.removeprefix("site-")
            assert service["volumes"] == [
                "${FOLDER}/agreement:/agreement:ro",
                f"${{FOLDER}}/sites/{number}:/site",
            ]


def test_a_batch_waits_for_others_and_rubbish_is_left_out(tmp_path: Path) -> None:
    keys = [OpeningKey.generate(KEM) for _ in range(4)]
    directory = directory_of([key.public for key in keys])
    with ExitStack() as ending:
        inlet, _, got = ending.enter_context(receiving(directory, keys[3]))
        following = {0: inlet.address}
        for layer in (2, 1, 0):
            node = MixNode(layer=layer, node=0)
            node.rotate(directory, keys[layer])
            mix = Mix(node, layer=layer, directory=directory, listen=(HERE, 0), addresses=following)
            ending.callback(mix.close)
            following = {0: mix.inlet.address}
        entry = following[0]
        hand_in([bytes(SETTINGS.cell_bytes)] * 3, entry)
        with socket.create_connection(entry) as line:  # half a cell
            line.sendall((1).to_bytes(4, "little") + bytes(100))
        with socket.create_connection(entry) as line:  # more than anybody may announce
            line.sendall((2**31).to_bytes(4, "little"))
            assert line.recv(4) == b""
        for sender in range(SENDERS):
            assert got == []
            cells = send([bytes([sender])], recipient=0, cells=CELLS, directory=directory)
            hand_in(cells, entry)
        until(lambda: len(got) == SENDERS, "the bag is not full")
    with pytest.raises(HostError, match="no node at"):
        hand_in(cells, entry, patience=0.2)


def test_a_directory_is_the_operators(tmp_path: Path) -> None:
    operator = Ed25519PrivateKey.generate()
    public = operator.public_key().public_bytes_raw()
    directory = directory_of([OpeningKey.generate(KEM).public for _ in range(4)])
    path = tmp_path / "directory"
    save_directory(directory, path, operator)
    assert load_directory(path, public).digest == directory.digest
    with pytest.raises(DataError, match="not signed by the operator"):
        load_directory(path, Ed25519PrivateKey.generate().public_key().public_bytes_raw())
    data = path.read_bytes()
    for place in (0, 10, len(data) - 1):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(DataError):
            load_directory(path, public)
    with pytest.raises(DataError, match="is not a directory"):
        load_directory(tmp_path / "none", public)


def test_a_mix_that_is_not_in_the_directory_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    operator = Ed25519PrivateKey.generate()
    (tmp_path / "operator.pub").write_text(operator.public_key().public_bytes_raw().hex())
    (tmp_path / "addresses.json").write_text('{"1-0": "127.0.0.1:1", "1-1": "nowhere"}')
    directory = directory_of([OpeningKey.generate(KEM).public for _ in range(4)])
    save_directory(directory, tmp_path / "directory", operator)
    assert main([str(tmp_path), "--layer", "0", "--listen", "127.0.0.1:0"]) == 2
    with pytest.raises(ConfigError, match="must be HOST:PORT"):
        addresses(tmp_path, 1)
    with pytest.raises(DataError, match="does not name nodes"):
        addresses(tmp_path / "elsewhere", 1)
    assert len(operator_of(tmp_path)) == 32
