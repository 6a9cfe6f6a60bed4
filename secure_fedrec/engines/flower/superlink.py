"""A SuperLink on this machine, and the run through which the coordinator sends."""

import time
from hashlib import sha256
from pathlib import Path
from threading import Thread

import httpx
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
from flwr.cli.build import build_fab_from_disk
from flwr.common.serde import fab_to_proto, run_from_proto
from flwr.proto.control_pb2 import RegisterNodeRequest, StartRunRequest
from flwr.proto.runtime_pb2 import PullTaskInputRequest
from flwr.serverapp import Grid
from flwr.supercore.constant import TaskType
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.fab import Fab
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import public_key_to_bytes
from flwr.supercore.task_identity import TaskIdentity
from flwr.superlink.grid import HttpGrid

from secure_fedrec.engines.flower.processes import (
    LOOPBACK,
    Running,
    await_port,
    flower_command,
)
from secure_fedrec.engines.flower.quiet_environment import require_quiet
from secure_fedrec.engines.flower.runtime_client import runtime_client, token_of_next
from secure_fedrec.errors import HostError

_APP = Path(__file__).with_name("app")
_PATIENCE = 180.0
_ENDING = 20.0
_TRIES = 4


def start_superlink(folder: Path, port: int, home: Path) -> Running:
    """Start a SuperLink that requires TLS and SuperNodes' keys, and wait for it.

    Args:
        folder: with ``superlink.pem``, ``superlink.key`` and ``ca.pem``; its log goes there.
        port: port of the loopback address.
        home: where Flower keeps its own files.

    Raises:
        HostError: the SuperLink does not start.
    """
    command = [
        flower_command("flower-superlink"),
        *("--host", LOOPBACK, "--port", str(port)),
        *("--ssl-certfile", str(folder / "superlink.pem")),
        *("--ssl-keyfile", str(folder / "superlink.key")),
        *("--ssl-ca-certfile", str(folder / "ca.pem")),
        "--enable-supernode-auth",
        "--disable-runtime-dependency-installation",
        *("--isolation", "process"),
    ]
    started = Running("SuperLink", command, folder / "superlink.log", {"FLWR_HOME": str(home)})
    try:
        await_port(started, port)
    except BaseException:
        started.kill()
        raise
    return started


class Link:
    """A coordinator's connection to a SuperLink.

    Args:
        address: host and port.
        ca: PEM file of the CA.

    Raises:
        ConfigError: Flower would contact hosts of its maker.
    """

    def __init__(self, address: str, ca: Path) -> None:
        require_quiet()
        self._address = address
        self._ca = ca.read_bytes()
        self._control = ControlHttpClient.from_server_address(
            server_address=address,
            insecure=False,
            root_certificates=self._ca,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )
        self._beats: HeartbeatSender | None = None
        self._grid: HttpGrid | None = None

    def register(self, key: EllipticCurvePublicKey) -> int:
        """Register a SuperNode with this key; returns its number at the SuperLink.

        Raises:
            HostError: the SuperLink refuses it, or is not reached.
        """
        try:
            found = self._control.RegisterNode(
                RegisterNodeRequest(public_key=public_key_to_bytes(key))
            )
        except httpx.HTTPError as failure:
            raise HostError(f"the SuperLink registers no node: {failure}") from failure
        return int(found.node_id)

    def run(self) -> Grid:
        """Begin a run whose server side is this process.

        Its app is a name only: neither this side nor a site's loads it.

        Raises:
            HostError: the SuperLink refuses it, or is not reached.
        """
        content = build_fab_from_disk(_APP)
        fab = Fab(sha256(content).hexdigest(), content, {})
        try:
            self._control.StartRun(StartRunRequest(fab=fab_to_proto(fab)))
            grid = HttpGrid(self._address, False, self._ca, token=self._token())
            grid._retry_invoker.max_tries = _TRIES  # as Flower's own server apps do
            client = grid._runtime_client
            found = client.PullTaskInput(PullTaskInputRequest())
        except httpx.HTTPError as failure:
            raise HostError(f"the SuperLink begins no run: {failure}") from failure
        TaskIdentity.task_id = found.task_id
        TaskIdentity.run_id = found.run.run_id
        TaskIdentity.node_id = found.context.node_id
        grid.set_run(run_from_proto(found.run))
        self._beats = HeartbeatSender(make_task_heartbeat_fn_http(client))
        self._beats.start()
        self._grid = grid
        return grid

    def close(self) -> None:
        """End the run's connections, within a time limit.

        A pool of connections whose lock is never released, as the library has been seen to do,
        would block without end; its open connections end with the process.
        """
        ending = Thread(target=self._end, name="ending", daemon=True)
        ending.start()
        ending.join(_ENDING)

    def _end(self) -> None:
        if self._beats is not None and self._beats.is_running:
            self._beats.stop()
        if self._grid is not None:
            self._grid.close()
        self._control.close()

    def _token(self) -> str:
        """The facts that the run's server side states about itself.

        Raises:
            HostError: the run does not come.
        """
        end = time.monotonic() + _PATIENCE
        with runtime_client(self._address, "SuperExec", ca=self._ca) as client:
            while time.monotonic() < end:
                token = token_of_next(client, TaskType.SERVER_APP)
                if token is not None:
                    return token
                time.sleep(0.1)
        raise HostError("the SuperLink does not hand out the run that was begun")
