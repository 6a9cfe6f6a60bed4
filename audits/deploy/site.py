"""The process of one host beside the server's: ``python -m audits.deploy.site AGREEMENT SITE ...``.

It starts the site's SuperNode, fetches its tasks and answers them, until it is terminated, its
SuperNode ends, or its parent process has ended.
"""

import argparse
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from audits.deploy.homes import open_host
from audits.deploy.logs import logged, take_over
from audits.deploy.metrics import Metrics, counted
from audits.deploy.options import add_watch
from secure_fedrec.engines.flower.quiet_environment import SWITCHES
from secure_fedrec.errors import FedRecError

if TYPE_CHECKING:
    from secure_fedrec.engines.flower.tasks import Reply


def main(
    arguments: Sequence[str] | None = None, *, beside: "Mapping[str, Reply] | None" = None
) -> int:
    """Run the process, and return its exit code.

    Args:
        arguments: the command line without the program; None takes ``sys.argv``.
        beside: handlers of further messages, by type.
    """
    parsed = parser().parse_args(arguments)
    os.environ.update(SWITCHES)
    os.environ.setdefault("FLWR_HOME", str(parsed.site / "flower"))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    with logged(parsed.log_format):
        try:
            with counted(parsed.metrics) as metrics:
                _serve(parsed, beside or {}, metrics)
        except (FedRecError, OSError) as refused:  # a full disk is reported like other errors
            logging.getLogger("secure-fedrec").error("%s", refused)
            return 2
        except SystemExit:
            return 0
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    words = argparse.ArgumentParser(prog="audits.deploy.site", description=__doc__)
    words.add_argument("agreement", type=Path, help="folder of what all hosts are given")
    words.add_argument("site", type=Path, help="folder of the client's own")
    words.add_argument("--superlink", required=True, metavar="HOST:PORT")
    words.add_argument("--certificates", type=Path, required=True, help="PEM file of the CA")
    words.add_argument("--port", type=int, required=True, help="port of the SuperNode's own API")
    words.add_argument("--key", type=Path, help="what seals private state (default: SITE/key)")
    words.add_argument("--record", action="store_true", help="record what it sees, unsealed")
    add_watch(words)
    return words


def _serve(
    parsed: argparse.Namespace, beside: "Mapping[str, Reply]", metrics: Metrics | None
) -> None:
    from secure_fedrec.engines.flower.message_bytes import ACTION  # noqa: PLC0415
    from secure_fedrec.engines.flower.processes import (  # noqa: PLC0415 - after the switches
        LOOPBACK,
        Running,
        supernode_command,
    )
    from secure_fedrec.engines.flower.scrubbed_replies import scrubbed  # noqa: PLC0415
    from secure_fedrec.engines.flower.tasks import handled, serve  # noqa: PLC0415

    take_over(parsed.log_format)
    command = supernode_command(
        superlink=parsed.superlink,
        certificates=parsed.certificates,
        key=parsed.site / "node.key",
        port=parsed.port,
    )
    node = Running("SuperNode", command, parsed.site / "supernode.log", {})
    starter = os.getppid()

    def alive() -> bool:
        return not node.ended and os.getppid() == starter

    with ExitStack() as ending:
        ending.callback(node.kill)  # killed: it holds no state, and takes seconds to stop
        site = open_host(parsed.agreement, parsed.site, key=parsed.key, record=parsed.record)
        ending.callback(site.close)
        answer: Callable[[bytes], bytes] = site.answer
        heard = _nothing
        if metrics is not None:
            answer, heard = metrics.answering(site.answer), metrics.beat
        logging.getLogger("secure-fedrec").info("%s is up", site.identity.node)
        replies = {ACTION: lambda message, _: scrubbed(answer, message), **beside}
        reply = partial(handled, replies)
        serve(reply, f"{LOOPBACK}:{parsed.port}", alive=alive, heard=heard)


def _nothing() -> None:
    """Do nothing when tasks are fetched: the default without metrics."""


def _leave(number: int, frame: object) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    sys.exit(main())
