"""Flower's own processes, started and ended."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from secure_fedrec.engines.flower.quiet_environment import SWITCHES
from secure_fedrec.errors import HostError

LOOPBACK = "127.0.0.1"
_PATIENCE = 180.0
_GRACE = 5.0
_GUARDED = 'exec 3<&0 </dev/null; { read -r _ <&3; kill -9 -$$; } & exec 3<&-; exec "$0" "$@"'
"""Start a command with a guard process, which ends the group when the holder of the pipe ends."""


class Running:
    """A process and its descendants, in a process group that ends when this process does.

    This works however this process ends: the kernel closes its end of a pipe, and a guard in the
    group, which reads the other end, kills the group.

    Args:
        name: for messages and its log.
        command: the command line.
        log: file that its output is added to.
        environment: variables beside those of this process.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str]
    ) -> None:
        self.name = name
        self.log = log
        self._command = ["/bin/sh", "-c", _GUARDED, *command]
        self._environment = {**os.environ, **SWITCHES, **environment}
        self._process = self._started()

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether the process is over."""
        return self._process.poll() is not None

    def again(self) -> None:
        """Restart it after it has ended.

        Raises:
            OSError: it cannot be started.
        """
        self.kill()
        self._process = self._started()

    def stop(self) -> None:
        """End the group; processes that do not end in time are killed."""
        self.signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE)
        self.kill()

    def kill(self) -> None:
        """End the group at once."""
        self.signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _started(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as output:
            return subprocess.Popen(  # noqa: S603 - our own command lines
                self._command,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
                start_new_session=True,
            )

    def signal(self, number: int) -> None:
        """Send a signal to the whole group."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)


def stop_all(processes: Sequence[Running]) -> None:
    """End several processes, all at once."""
    for process in processes:
        process.signal(signal.SIGTERM)
    for process in processes:
        process.stop()


def flower_command(name: str) -> str:
    """One of Flower's commands, of this very environment."""
    return str(Path(sys.executable).with_name(name))


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that are free."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((LOOPBACK, 0))
        return [int(each.getsockname()[1]) for each in sockets]


def await_port(process: Running, port: int, *, patience: float = _PATIENCE) -> None:
    """Wait until a process listens on its port.

    Raises:
        HostError: the process ended, or does not listen in time.
    """
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if process.ended:
            raise HostError(f"{process.name} ended at once; {process.log} says why")
        with contextlib.suppress(OSError), socket.create_connection((LOOPBACK, port), 1.0):
            return
        time.sleep(0.05)
    raise HostError(f"{process.name} does not listen after {patience:.0f} s; see {process.log}")


def supernode_command(*, superlink: str, certificates: Path, key: Path, port: int) -> list[str]:
    """The command line of a SuperNode whose tasks a process of the site's own fetches.

    Args:
        superlink: host and port.
        certificates: PEM file of the CA.
        key: by which the SuperLink knows it.
        port: port of its own API, on the loopback address.
    """
    return [
        flower_command("flower-supernode"),
        *("--root-certificates", str(certificates)),
        *("--auth-supernode-private-key", str(key)),
        *("--superlink", superlink),
        *("--host", LOOPBACK, "--port", str(port)),
        *("--isolation", "process"),
    ]
