"""A site's process killed at every stage of masked rounds on real processes.

``make kills``, or ``python -m tests.deploy.kills [CLIENTS]``: a SuperLink, and a SuperNode and a
site per client, ten unless told otherwise, which takes minutes. In every round the site of one
client, with its SuperNode, is killed as the messages of a stage are on their way to it, and started
anew after the round. Every round must end in the sum of those who were heard, bit for bit that of
the embedded engine, with the killed client in it if its upload was. Between two such rounds is one
in which it agrees on keys again; its journal refuses what it has begun before. Keys are agreed on
while the round before is summed, so a kill at UPLOAD is one at ADVERTISE of the next round, and one
at CONFIRM one at SHARES.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from audits.config.audit import parse_config
from audits.deploy.command import Hosts, hosts, silenced
from audits.deploy.homes import Layout, provision
from audits.run.build import build_federation, load_dataset
from secure_fedrec.engines import table_digest
from secure_fedrec.protection.session import Node, Role

STAGES = ("UPLOAD", "CONFIRM", "REVEAL")
VICTIM = 2
SUMMED = {"CONFIRM", "REVEAL"}
"""Stages at which the victim's upload is in the sum already."""


def run(clients: int, timeout: float) -> list[dict[str, Any]]:
    """Two rounds per stage, one before and one after; what each came to."""
    config = parse_config(
        {
            "seed": 3,
            "data": {"name": "synthetic", "clients": clients, "items": 40},
            "algorithm": {"rounds": 2 * len(STAGES) + 2},
            "protection": [{"layer": "masking", "adversary": "active"}],
        }
    )
    federation = build_federation(config, load_dataset(config, None).task(0))
    reports: dict[int, Any] = {}
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        layout = Layout(Path(folder))
        provision(federation, layout)
        keyed = federation.under(layout.secrets())
        plain = parse_config({**config.as_json(), "protection": []})
        twin = keyed.engine(
            keyed.fresh(),
            stack=build_federation(plain, federation.task).stack,
            evaluate=None,
            participants=lambda round_: reports[round_].clients,
        )
        with hosts(layout, timeout=timeout) as up:
            up.coordinator.channel.greet(timeout)
            before = ""
            for stage in ("", *(due for each in STAGES for due in (each, "")), ""):
                _kill_at(up, stage)
                began = time.perf_counter()
                report = up.coordinator.run_round()
                reports[report.round] = report
                twin.run_round()
                heard = VICTIM in report.clients
                line = {
                    "round": report.round,
                    "killed_at": stage,
                    "clients": len(report.clients),
                    "attempts": report.attempts,
                    "exchanges": report.exchanges,
                    "seconds": round(time.perf_counter() - began, 1),
                    "victim_in_sum": heard,
                    "equal": table_digest(up.coordinator.public) == table_digest(twin.public),
                }
                print(json.dumps(line), flush=True)
                lines.append(line)
                assert line["equal"], "a wrong sum"
                there = not before if not stage else stage in SUMMED
                assert heard == there, "the victim is where it must not be"
                before = stage
                if stage:
                    _back(up)
    return lines


def _back(up: Hosts) -> None:
    """Start the victim anew, and wait for it."""
    up.sites[VICTIM].again()
    end = time.monotonic() + 120.0
    while VICTIM not in up.coordinator.channel.sessions():
        assert time.monotonic() < end, "the victim does not come back"
        up.coordinator.channel.greet(15.0)


def _kill_at(up: Hosts, stage: str) -> None:
    """Kill the victim once the messages of a stage are at the SuperLink."""
    grid = up.transport.grid
    push = type(grid).push_messages.__get__(grid)
    lines = up.coordinator.channel._lines

    def pushing(messages: Iterable[Any]) -> Any:
        sent = list(messages)
        found = push(sent)
        if stage and sent[0].metadata.group_id == stage:
            victim = lines[Node(Role.CLIENT, VICTIM)].address
            assert victim in {message.metadata.dst_node_id for message in sent}, "it is not asked"
            up.sites[VICTIM].kill()
        return found

    grid.push_messages = pushing  # type: ignore[method-assign]


if __name__ == "__main__":
    silenced()
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    run(count, timeout=120.0)
