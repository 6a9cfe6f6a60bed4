"""Health checks of the compose example, run against what they look at."""

import os
import shlex
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from audits.command_line import parse
from audits.deploy import site as site_process
from audits.deploy.metrics import Metrics
from secure_fedrec.engines.cascade import Inlet

FILE = Path(__file__).parents[2] / "examples" / "deploy" / "compose.yaml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text())["services"]
JOBS = {"registered", "cascade"}
WATCHED = [name for name in SERVICES if name == "server" or name.startswith("site-")]


def healthy(check: str) -> bool:
    """Whether a check passes, as a container's shell runs it."""
    ended = subprocess.run(["sh", "-c", check], capture_output=True, check=False)  # noqa: S603, S607
    return ended.returncode == 0


def check_of(name: str, old: str, new: str) -> str:
    """A service's check, of another place than in its container."""
    check: str = SERVICES[name]["healthcheck"]["test"]
    assert old in check
    return check.replace(old, new)


def test_the_file_is_one_of_compose() -> None:
    words = ["-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(FILE)]
    ended = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)  # noqa: S603
    assert ended.returncode == 0, ended.stdout


def test_every_service_has_a_check_or_ends() -> None:
    assert {name for name, service in SERVICES.items() if "healthcheck" not in service} == JOBS
    waited = {
        name
        for service in SERVICES.values()
        if isinstance(service.get("depends_on"), dict)
        for name, how in service["depends_on"].items()
        if how["condition"] == "service_completed_successfully"
    }
    assert waited == {"registered"}
    superlink = SERVICES["registered"]["depends_on"]["superlink"]
    assert superlink == {"condition": "service_healthy"}


@pytest.mark.parametrize("name", WATCHED)
def test_a_host_is_healthy_while_its_metrics_are_written(name: str, tmp_path: Path) -> None:
    """The file is the one that its command writes, in a folder that it may write to."""
    words = shlex.split(SERVICES[name]["command"])
    parsed = parse(words[1:]) if name == "server" else site_process.parser().parse_args(words[3:])
    assert parsed.log_format == "json"
    mounted = [volume.split(":", 1)[1] for volume in SERVICES[name]["volumes"]]
    assert str(parsed.metrics.parent) in mounted
    own = tmp_path / "m.prom"
    check = check_of(name, str(parsed.metrics), str(own))
    assert not healthy(check)
    metrics = Metrics(own)
    assert healthy(check)
    hour = time.time() - 3600
    os.utime(own, (hour, hour))
    assert not healthy(check)
    metrics.write()
    assert healthy(check)


def test_a_mix_is_healthy_while_it_listens() -> None:
    inlet = Inlet(("127.0.0.1", 0), 64, lambda cell: None)
    check = check_of("mix-0", "9500", str(inlet.address[1]))
    try:
        assert healthy(check)
    finally:
        inlet.close()
    assert not healthy(check)
    for name in ("mix-0", "mix-1", "mix-2"):
        assert "--listen 0.0.0.0:9500" in SERVICES[name]["command"]
        assert SERVICES[name]["healthcheck"] == SERVICES["mix-0"]["healthcheck"]


@contextmanager
def answering(folder: Path) -> Iterator[int]:
    """A port where TLS is spoken with the SuperLink's certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "superlink.pem", folder / "superlink.key")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    line, _ = listening.accept()
                except OSError:
                    return
                try:
                    with context.wrap_socket(line, server_side=True) as spoken:
                        spoken.recv(1)
                except OSError:  # whoever does not believe the certificate hangs up
                    line.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listening.getsockname()[1]
        listening.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_superlink_is_healthy_while_it_shows_a_certificate_of_the_ca(tmp_path: Path) -> None:
    pytest.importorskip("flwr")
    from secure_fedrec.engines.flower.certificates import make_certificates

    for name in ("own", "other"):
        (tmp_path / name).mkdir()
        make_certificates(tmp_path / name)
    check: str = SERVICES["superlink"]["healthcheck"]["test"]
    assert "--port 8000" in SERVICES["superlink"]["command"]
    # Those certificates are for the loopback address, not for the name of a container.
    check = check.replace("-verify_hostname superlink", "-verify_ip 127.0.0.1")
    own, other = (str(tmp_path / name / "ca.pem") for name in ("own", "other"))
    with answering(tmp_path / "own") as port:
        check = check.replace("superlink:8000", f"127.0.0.1:{port}")
        assert healthy(check.replace("/flower/ca.pem", own))
        assert not healthy(check.replace("/flower/ca.pem", other))
    assert not healthy(check.replace("/flower/ca.pem", own))
