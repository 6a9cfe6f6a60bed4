"""A PyTorch loop whose parties are processes that talk over sockets of their own, protected.

    python loop.py server FOLDER 7000        its own folder: keys, roster, server.pem, server.key
    python loop.py client FOLDER 0 7000      and of clients 1 and 2: keys, roster, ca.pem

Clients fit a line to points of their own. The server learns the weighted mean of what their models
moved by, under masks, and nothing else. Below the mark stands what protection takes.
"""

import socket
import ssl
import struct
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch

from secure_fedrec.engines.distributed import BEGIN, Keys, MeanCoordinator, MeanSite, Task
from secure_fedrec.errors import FedRecError
from secure_fedrec.protection.means import Arrays, MaskedMean, Update, trained

CLIENTS, ROUNDS, TIMEOUT = 3, 2, 60.0


class Line(torch.nn.Linear):
    """What is fitted."""

    def __init__(self) -> None:
        super().__init__(6, 1)


def data_of(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A client's own points."""
    points = torch.randn(20 + 10 * client, 6, generator=torch.Generator().manual_seed(client))
    return points, points @ torch.arange(6.0)[:, None] + 1.0


def start() -> Arrays:
    """Where training begins."""
    return {name: np.zeros_like(each) for name, each in Line().state_dict().items()}


def train(model: Arrays, client: int) -> tuple[Arrays, int]:
    """Some steps on a client's own data: the model after them, and over how many points."""
    line, (points, values) = Line(), data_of(client)
    line.load_state_dict({name: torch.tensor(each) for name, each in model.items()})
    optimizer = torch.optim.SGD(line.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(line(points), values).backward()
        optimizer.step()
    return {name: each.numpy() for name, each in line.state_dict().items()}, len(points)


# --- sockets: a message is data and a model, each behind its size ---
def send(line: BinaryIO, data: bytes, model: bytes = b"") -> None:
    """Send a message."""
    line.write(struct.pack("<II", len(data), len(model)) + data + model)
    line.flush()


def receive(line: BinaryIO) -> tuple[bytes, bytes]:
    """Wait for a message; two empty ones at the end of the line."""
    data, model = struct.unpack("<II", line.read(8) or bytes(8))
    return line.read(data), line.read(model)


class Lines:
    """Carries bytes to clients' processes (``engines.distributed.Transport``)."""

    def __init__(self, lines: list[BinaryIO]) -> None:
        self.lines = dict(enumerate(lines))
        self.model = b""

    def addresses(self) -> list[int]:
        """Lines that are open."""
        return list(self.lines)

    def exchange(
        self, label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        """Ask everybody, then take the answers; a line that breaks is a client that is gone."""
        del timeout  # of the sockets, set once
        for address, data in messages.items():
            send(self.lines[address], data, self.model if label == BEGIN else b"")
        for address in messages:
            try:
                yield address, receive(self.lines[address])[0]
            except (OSError, struct.error):
                del self.lines[address]


# --- protection: what is settled, and each side's half ---
TERMS = MaskedMean(clip=16.0, max_weight=100, corrupt=0.0, dropout=0.0, shared=trained(Line()))


def task_of(sent: bytes, client: int = -1) -> Task:
    """What there is to do with a model; the server does nothing."""
    model = dict(np.load(BytesIO(sent)))

    def update() -> Update:
        after, points = train(model, client)
        return Update(arrays=TERMS.select(model).moved(model, after), weight=points)

    return Task(digest=sha256(sent).digest(), model=model, compute=update)


def run_server(folder: Path, lines: list[BinaryIO]) -> Arrays:
    """All rounds; the model."""
    server, transport = MeanCoordinator(TERMS, Keys(folder)), Lines(lines)
    model = start()
    for number in range(1, ROUNDS + 1):
        np.savez(sent := BytesIO(), **model)
        transport.model = sent.getvalue()
        report = server.run_round(transport, task_of(transport.model))
        model = TERMS.select(model).moved_by(model, report.mean.arrays)
        print(f"round {number}: a mean of {len(report.clients)} clients", flush=True)
    return model


def run_client(folder: Path, line: BinaryIO, client: int) -> None:
    """Answer until the line ends; what is refused has an empty answer."""
    with MeanSite(TERMS, Keys(folder)) as site:
        while (message := receive(line))[0]:
            try:
                answer = site.answer(
                    message[0], task_of(message[1], client) if message[1] else None
                )
            except FedRecError as refused:
                print(f"client {client}: {refused}", file=sys.stderr, flush=True)
                answer = b""
            send(line, answer)


# --- end of the protection ---
def reached(port: int) -> socket.socket:
    """A connection to the server, once it listens."""
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except ConnectionRefusedError:
            time.sleep(0.1)


def main(role: str, folder: Path, *numbers: int) -> None:
    """One party's process."""
    if role == "server":
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(folder / "server.pem", folder / "server.key")
        with socket.create_server(("127.0.0.1", numbers[0])) as door, ExitStack() as held:
            door.settimeout(TIMEOUT)
            lines = []
            for _ in range(CLIENTS):
                line = held.enter_context(context.wrap_socket(door.accept()[0], True))
                line.settimeout(TIMEOUT)
                lines.append(held.enter_context(line.makefile("rwb")))
            np.savez(folder / "model.npz", **run_server(folder, lines))
    else:
        context = ssl.create_default_context(cafile=folder / "ca.pem")
        line = context.wrap_socket(reached(numbers[1]), server_hostname="127.0.0.1")
        with line, line.makefile("rwb") as stream:
            run_client(folder, stream, numbers[0])


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), *map(int, sys.argv[3:]))
