"""``scale``: masked rounds of up to 10,000 clients, in processes of this machine, and their plan.

The server's half is in this process, the clients' halves in as many others as there are cores. Each
round is against a curious server, with one client in twenty gone after it has shared its secrets,
which is the dearest moment; every byte is made, sent and checked as between hosts. Beside what was
measured stands what ``secure-fedrec plan`` foretells of the same round on this machine. CPU seconds
leave out what stands for a network here: pipes between processes.

``plans`` goes on to 10^7 clients in one sum, where nothing is run.
``mix`` is one mix of a cascade: CPU seconds, bytes and memory for every cell of a batch.

Judged: ``client_over_plan`` and ``server_over_plan``, the larger of measured over foretold and
foretold over measured, worst over the rows; bytes must be those of the plan.
"""

import gc
import json
import multiprocessing
import os
import platform
import resource
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Final, get_args

import numpy as np

from benchmarks.federations import Options
from benchmarks.measure import progress
from secure_fedrec.planning.calibration import Calibration
from secure_fedrec.planning.costs import Plan, plan
from secure_fedrec.protection.masking import (
    EncodedVector,
    Expected,
    Federation,
    MaskingClient,
    MaskingConfig,
    SitePolicy,
    Statement,
)
from secure_fedrec.protection.masking.client.sealed_state import AWAITED
from secure_fedrec.protection.masking.config.degrees import Adversary
from secure_fedrec.protection.routing import (
    KEMS,
    Directory,
    MixNode,
    OpeningKey,
    RoutingConfig,
    send,
)
from secure_fedrec.protection.session import Parcel, drive

DIM: Final = 20_000
"""Ring words of a client's vector: a model of 80 kB."""
CORRUPT, DROPOUT = 0.1, 0.05
STATEMENT: Final = Statement(federation=b"f" * 32, state=b"s" * 32)
"""Any one: nothing is computed from a state here."""
TARGETS: Final = {"client_over_plan": "<= 2", "server_over_plan": "<= 2"}
_QUICK, _FULL = (100, 300), (100, 1_000, 10_000)
_TIMED: Final = 1_000
_PLANNED: Final = (100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000)
_CELLS: Final = {True: 500, False: 10_000}
_MOST_AWAKE: Final = 2_000
"""Clients whose halves are all held in memory."""
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of the machine's memory
_SHARED = "UPLOAD"
"""The stage at which some are gone."""


def run(options: Options) -> dict[str, Any]:
    """Measured and foretold costs of each number of clients."""
    rows = []
    for clients in _QUICK if options.quick else _FULL:
        progress(f"{clients} clients")
        rows.append(_row(clients))
    return {
        "machine": {"cores": os.cpu_count(), "processor": _processor()},
        "vector_words": DIM,
        "rows": rows,
        "plans": plans(_QUICK if options.quick else _PLANNED),
        "mix": _mix(_CELLS[options.quick]),
        "client_over_plan": max(_apart(row, "client_seconds") for row in rows),
        "server_over_plan": max(_apart(row, "server_seconds") for row in rows),
        "targets": TARGETS,
    }


def plans(counts: Sequence[int]) -> list[dict[str, Any]]:
    """Costs of rounds of so many clients, all in one sum, against either kind of server.

    Operations are timed once, for rounds of 1,000.
    """
    found = []
    for adversary in get_args(Adversary):
        calibration = foretold(_TIMED, adversary).calibration
        for clients in counts:
            progress(f"plan of {clients} clients, {adversary} server")
            each = foretold(clients, adversary, calibration)
            row = {"clients": clients, "adversary": adversary, "neighbours": each.config.neighbours}
            listed = {message.kind: message.size for message in each.messages}
            found.append(row | costs_of(each) | {"setup_bytes": listed["SETUP"]})
    return found


def foretold(
    clients: int, adversary: Adversary = "curious", calibration: Calibration | None = None
) -> Plan:
    """The plan of a round of so many clients."""
    return plan(
        clients=clients,
        cohort=clients,
        dropout=DROPOUT,
        corrupt=CORRUPT,
        dim=DIM,
        adversary=adversary,
        calibration=calibration,
    )


def costs_of(found: Plan) -> dict[str, float]:
    """CPU seconds, and bytes of a client, in a plan."""
    figures = {figure.name: float(figure.value) for figure in found.figures}
    dropped = next(
        name for name in figures if name.startswith("server time, ") and "no" not in name
    )
    return {
        "client_seconds": figures["client time"],
        "server_seconds": figures[dropped],
        "client_bytes_up": figures["client sends"],
        "client_bytes_down": figures["client receives"],
    }


def _row(clients: int) -> dict[str, Any]:
    expected = foretold(clients)
    return {
        "clients": clients,
        "dropped": expected.parameters.dropped_clients,
        "neighbours": expected.config.neighbours,
        "planned": costs_of(expected),
        "measured": _measured(expected.config, expected.parameters.dropped_clients),
    }


def _measured(config: MaskingConfig, dropped: int) -> dict[str, float]:
    """One round; means over all clients, and costs of the server.

    Raises:
        AssertionError: the sum is not that of the clients that stayed.
    """
    gc.collect()
    config = replace(config, statement=STATEMENT.digest)
    policy = SitePolicy(adversary="curious", corrupt=CORRUPT, dropout=DROPOUT)
    federation = Federation(range(config.clients), policy=policy)
    before = _resident()
    server = federation.open_server(config, federation.roster.numbers)
    workers = _Workers(federation, config, set(range(dropped)))
    began, cpu = perf_counter(), process_time()
    drive(server, workers)
    wall, seconds = perf_counter() - began, process_time() - cpu - workers.seconds
    staying = np.arange(dropped, config.clients)
    assert np.array_equal(server.survivors, staying)
    word = int(np.add.reduce(staying.astype(np.uint64)) % 2**config.bits)
    assert np.all(server.result == word), "not the sum"
    peak = _resident()
    ended = workers.close()
    found = {
        "client_seconds": ended["seconds"] / config.clients,
        "server_seconds": seconds,
        "client_bytes_up": workers.up / config.clients,
        "client_bytes_down": workers.down / config.clients,
        "client_memory_bytes": ended["memory"] / config.clients,
        "server_memory_bytes": float(peak - before),
        "wall_seconds": wall,
    }
    progress(json.dumps(found))
    return found


def _mix(cells: int) -> dict[str, float]:
    """What one mix of a cascade takes for a cell, on its way in and out.

    Raises:
        AssertionError: not all cells were forwarded.
    """
    settings = RoutingConfig(min_batch=cells)
    keys = [OpeningKey.generate(KEMS[settings.kem]) for _ in range(settings.layers + 1)]
    publics = [(key.public,) for key in keys]
    directory = Directory(
        config=settings, epoch=1, mixes=tuple(publics[:-1]), recipients=publics[-1]
    )
    mix = MixNode(layer=0, node=0)
    mix.rotate(directory, keys[0])
    cpu = process_time()
    made = send([bytes(64)], recipient=0, cells=cells, directory=directory)
    wrapped, before, cpu = process_time() - cpu, _resident(), process_time()
    for cell in made:
        mix.receive(cell)
    forwarded = mix.flush()
    seconds = process_time() - cpu
    assert len(forwarded) == cells
    return {
        "cells": cells,
        "layers": settings.layers,
        "bytes_in_per_cell": len(made[0]),
        "bytes_out_per_cell": len(forwarded[0]),
        "seconds_per_cell": seconds / cells,
        "memory_bytes_per_cell": (_resident() - before) / cells,
        "sender_seconds_per_cell": wrapped / cells,
    }


class _Workers:
    """Clients' halves in processes of their own (a ``protection.session.Channel``)."""

    def __init__(self, federation: Federation, config: MaskingConfig, gone: set[int]) -> None:
        context = multiprocessing.get_context("fork")
        count = max(1, os.cpu_count() or 1)
        self.seconds, self.up, self.down = 0.0, 0, 0
        self._ends: list[Connection[Any, Any]] = []
        self._processes = []
        for worker in range(count):
            here, there = context.Pipe()
            numbers = range(worker, config.clients, count)
            arguments = (there, federation, config, numbers, gone)
            process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            there.close()
            self._ends.append(here)
            self._processes.append(process)

    def exchange(
        self, stage: str, messages: Sequence[Parcel], timeout: float | None = None
    ) -> Iterator[bytes]:
        """Hand messages to the workers, and give answers as they come (``Channel.exchange``)."""
        cpu = process_time()
        for parcel in messages:
            number = parcel.receiver.number
            self.down += len(parcel.data)
            self._ends[number % len(self._ends)].send((number, parcel.data))
        for end in self._ends:
            end.send((-1, stage.encode()))
        open_ = {id(end): end for end in self._ends}
        while open_:
            for ready in wait(open_.values()):
                data = open_[id(ready)].recv()
                if data is None:
                    del open_[id(ready)]
                    continue
                self.up += len(data)
                self.seconds += process_time() - cpu
                yield data
                cpu = process_time()
        self.seconds += process_time() - cpu

    def close(self) -> Mapping[str, float]:
        """End the processes; CPU seconds and bytes of memory of all clients."""
        totals = {"seconds": 0.0, "memory": 0.0}
        for end, process in zip(self._ends, self._processes, strict=True):
            end.send((-2, b""))
            for name, value in end.recv().items():
                totals[name] += value
            process.join()
        return totals


def _work(
    end: "Connection[Any, Any]",
    federation: Federation,
    config: MaskingConfig,
    numbers: range,
    gone: set[int],
) -> None:
    """A worker: some clients, each uploads its own number in every word."""
    before = _resident()
    memory = _MEMORY if _MEMORY.is_dir() else None  # nobody waits for a disk here
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        halves = _Halves(federation, config, Path(folder))
        inbox: list[tuple[int, bytes]] = []
        while True:
            number, data = end.recv()
            if number >= 0:
                inbox.append((number, data))
                continue
            if number == -2:
                grown = float(_resident() - before)
                end.send({"seconds": halves.seconds, "memory": grown})
                return
            for receiver, message in inbox:
                if data.decode() != _SHARED or receiver not in gone:
                    for parcel in halves.step(receiver, message):
                        end.send(parcel.data)
            inbox = []
            end.send(None)


class _Halves:
    """Clients' halves; in large rounds each is parked in a file between two messages.

    So is a client whose host lives for one message at a time. What parking takes is not counted: a
    client on a device of its own is in memory.
    """

    def __init__(self, federation: Federation, config: MaskingConfig, folder: Path) -> None:
        self.seconds = 0.0
        self._federation, self._config, self._folder = federation, config, folder
        self._parked = config.clients > _MOST_AWAKE
        self._key = os.urandom(32)
        self._awake: dict[int, MaskingClient] = {}
        self._done: set[int] = set()
        self._expected = Expected(layout_hash=config.layout_hash, statement=STATEMENT)

    def step(self, number: int, message: bytes) -> list[Parcel]:
        """A client's answer to a message."""
        if number in self._done:  # the receipt, which a parked client does not look at
            return []
        path = self._folder / str(number)
        half = self._awake.pop(number, None) or self._opened(number, path)
        cpu = process_time()
        parcels = half.step([message])
        self.seconds += process_time() - cpu
        if not self._parked:
            self._awake[number] = half
        elif half.state.value in AWAITED:
            half.save(path, self._key)
        else:
            self._done.add(number)
        return parcels

    def _opened(self, number: int, path: Path) -> MaskingClient:
        config, cpu = self._config, process_time()
        half = self._federation.open_client(number, self._expected)
        if path.exists():
            half.resume(path, self._key)
            return half
        words = np.full(config.length, number, dtype=np.uint32)
        vector = EncodedVector(
            words=words, bits=config.bits, layout_hash=config.layout_hash, clients=config.clients
        )
        half.load(vector)
        self.seconds += process_time() - cpu
        return half


def _apart(row: Mapping[str, Any], name: str) -> float:
    ratio = float(row["measured"][name] / row["planned"][name])
    return round(max(ratio, 1 / ratio), 3)


def _resident() -> int:
    """Peak resident bytes of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
