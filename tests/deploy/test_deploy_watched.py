"""A deployment is watched: lines for machines, metrics for Prometheus, what is waited for."""

import json
import logging
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import prometheus_client
import pytest
from prometheus_client.parser import text_string_to_metric_families

from audits import cli
from audits.deploy import mix as mix_process
from audits.deploy import site as site_process
from audits.deploy.command import greet_all
from audits.deploy.homes import open_coordinator
from audits.deploy.logs import logged, spoken
from audits.deploy.metrics import Metrics, counted
from audits.deploy.watch import METRICS_NAME, Watch
from secure_fedrec.engines.distributed import DistributedReport
from secure_fedrec.engines.distributed.round_log import log, refusal_fields, with_fields
from secure_fedrec.engines.distributed.server_log import Traffic, log_summed
from secure_fedrec.errors import ConfigError, EncodingError, HostError, ProtocolError
from tests.deploy.memory import Deployment
from tests.deploy.test_deploy_halt import NOISED
from tests.deploy.test_deploy_rounds import MASKS, TEN, settings
from tests.deploy.test_deploy_site_command import shown


def told(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """What was said on standard error, every line of which is an object."""
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def events(lines: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in lines if line.get("event") == event]


def figures(path: Path) -> dict[str, float]:
    """Samples of a file, as Prometheus reads them; a label stands behind its name."""
    found = {}
    for family in text_string_to_metric_families(path.read_text()):
        for sample in family.samples:
            name = ":".join([sample.name, *sample.labels.values()])
            found[name.removeprefix("secure_fedrec_")] = sample.value
    return found


def of_the_server(record: logging.LogRecord) -> bool:
    """Whether a record is the server's: here its sites log in the same process."""
    return record.module == "server_log"


def watched(ran: Deployment, after: Callable[[int, int], None]) -> Traffic:
    """Count what the server's host carries from now on."""
    ran.coordinator.save()
    traffic = Traffic(ran.transport, after)
    ran.coordinator = open_coordinator(ran.layout, traffic)
    ran.coordinator.resume()
    return traffic


def summed(ran: Deployment, traffic: Traffic) -> DistributedReport:
    traffic.sent = traffic.received = 0
    ran.rounds(1)
    log_summed(ran.last, ran.coordinator.plan, traffic)
    return ran.last


def test_rounds_are_lines_for_machines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The price in them is what the owner is shown."""
    ran = Deployment.of(settings(*NOISED, algorithm={"rounds": 2}), tmp_path)
    traffic = watched(ran, lambda out, back: None)
    with logged("json"):
        report = summed(ran, traffic)
        lines = told(capsys)
    assert {line["level"] for line in lines} == {"INFO"}
    for line in lines:
        assert datetime.fromisoformat(line["time"]).utcoffset() is not None
        assert line["logger"] == "secure-fedrec"
        assert line["message"].startswith("round 1")
    *sites, server = events(lines, "round")
    assert len(sites) == 5
    standing = shown(ran, 3, capsys)
    for line in sites:
        assert (line["round"], line["statement"]) == (1, report.statement)
        assert line["attempt"] > 0
        assert line["bytes"] > 0
        assert line["seconds"] >= 0
        assert line["epsilon_spent"] == standing["epsilon_spent"]
        assert line["epsilon_left"] == standing["epsilon_left"]
    assert (server["participants"], server["invited"]) == (len(report.clients), report.invited)
    assert (server["attempts"], server["exchanges"]) == (1, report.exchanges)
    assert server["bytes_in"] > sum(line["bytes"] for line in sites)
    assert (server["bytes_out"], server["bytes_in"]) == (traffic.sent, traffic.received)
    assert server["epsilon_left"] == standing["epsilon_left"]


def test_who_is_left_out_is_a_line_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Deployment.of(settings(MASKS, **TEN), tmp_path)
    traffic = watched(ran, lambda out, back: None)
    ran.transport.back = lambda label, client, data: [] if client == 3 else [data]
    with logged("json"):
        report = summed(ran, traffic)
        lines = told(capsys)
    assert report.left_out.keys() == {3}
    (line,) = events(lines, "left-out")
    assert (line["level"], line["client"]) == ("WARNING", 3)
    assert line["why"] == report.left_out[3]


def test_every_line_is_an_object(capsys: pytest.CaptureFixture[str]) -> None:
    with logged("json"):
        log.info("two\nlines \x1b[31m")
        try:
            raise ValueError("at work")
        except ValueError:
            logging.getLogger("elsewhere").exception("failed")
        logging.getLogger("elsewhere").info("not ours")
        warnings.showwarning(UserWarning("look out"), UserWarning, "a file", 1)
    first, second, third = told(capsys)
    assert first["message"] == "two\nlines \x1b[31m"
    assert "at work" in second["traceback"]
    assert (second["level"], second["logger"]) == ("ERROR", "elsewhere")
    assert "look out" in third["message"]
    log.info("afterwards")
    assert capsys.readouterr().err == ""
    assert json.loads(spoken("a problem"))["level"] == "ERROR"


def test_lines_for_people_are_as_before(capsys: pytest.CaptureFixture[str]) -> None:
    with logged("text"):
        log.warning("refused: %s", "a signature", extra=with_fields(event="refused", refused="x"))
    said = capsys.readouterr().err
    assert said.endswith(" secure-fedrec WARNING refused: a signature\n")


@pytest.mark.claim("hosts-metrics")
def test_a_refusal_says_its_round_and_nothing_of_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)
    ran.rounds(1)
    site = ran.site(3)
    site._kept = replace(site._kept, round=9)
    with pytest.raises(ProtocolError):
        ran.rounds(1)
    fields = caplog.records[-1].__dict__["fields"]
    assert fields["refused"] == "RefusalError"
    assert (fields["round"], fields["attempt"] > 0) == (2, True)
    assert "is over" in fields["why"]
    of_data = [EncodingError("rated 5"), KeyError("rated 5"), ConfigError("a", "rated 5", "is bad")]
    kinds = [refusal_fields(each)["fields"] for each in of_data]
    assert [each["refused"] for each in kinds] == ["EncodingError", "other", "ConfigError"]
    assert "rated" not in str(kinds)


def test_a_server_is_counted(tmp_path: Path) -> None:
    ran = Deployment.of(settings(*NOISED, algorithm={"rounds": 2}), tmp_path)
    path = tmp_path / "m.prom"
    log.setLevel(logging.INFO)
    with counted(path) as metrics:
        assert metrics is not None
        metrics.addFilter(of_the_server)
        assert figures(path)["rounds_total"] == 0
        assert "round" not in figures(path)
        traffic = watched(ran, metrics.carried)
        reports = [summed(ran, traffic)]
        first = figures(path)
        assert (first["bytes_total:out"], first["bytes_total:in"]) == (
            traffic.sent,
            traffic.received,
        )
        reports.append(summed(ran, traffic))
    found = figures(path)
    assert found["rounds_total"] == found["round"] == found["round_seconds_count"] == 2
    assert found["round_seconds_sum"] == pytest.approx(sum(each.seconds for each in reports), abs=1)
    assert found["exchanges_total"] == sum(each.exchanges for each in reports)
    assert (found["participants"], found["invited"]) == (5, 5)
    assert found["bytes_total:in"] > first["bytes_total:in"] > 0
    assert found["epsilon_spent"] > first["epsilon_spent"] > 0
    assert (found["epsilon_left"], first["epsilon_left"] > 0) == (0, True)
    assert not [name for name in found if name.startswith("refusals_total")]
    globally = prometheus_client.generate_latest().decode()
    assert "secure_fedrec" not in globally


@pytest.mark.claim("hosts-metrics")
def test_a_site_is_counted_and_refusals_by_their_kind_alone(tmp_path: Path) -> None:
    path = tmp_path / "m.prom"
    log.setLevel(logging.INFO)
    failures: Iterator[Exception] = iter(
        [ProtocolError("rated 5"), EncodingError("rated 5"), KeyError("rated 5")]
    )

    def answer(data: bytes) -> bytes:
        if data == b"good":
            return b"answer"
        raise next(failures)

    with counted(path) as metrics:
        assert metrics is not None
        counting = metrics.answering(answer)
        assert counting(b"good") == b"answer"
        for _ in range(3):
            try:
                counting(b"bad")
            except Exception as failure:
                log.warning("refused", extra=refusal_fields(failure))
    found = figures(path)
    kinds = {name for name in found if name.startswith("refusals_total")}
    assert kinds == {
        f"refusals_total:{kind}" for kind in ("ProtocolError", "EncodingError", "other")
    }
    assert (found["exchanges_total"], found["bytes_total:in"]) == (4, 13)
    assert found["bytes_total:out"] == 6
    assert "rated" not in path.read_text()


def test_a_file_that_cannot_be_written_is_refused_before_anything_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "plain.toml"
    config.write_text('[data]\nname = "synthetic"\nclients = 3\n[algorithm]\nrounds = 1\n')
    out = tmp_path / "out"
    for place in (tmp_path / "nowhere" / "m.prom", tmp_path):
        words = ["deploy", str(config), "--out", str(out), "--metrics", str(place)]
        assert cli.main(words) == 2
        said = capsys.readouterr().err
        assert said.startswith("secure-fedrec: --metrics = ")
        assert "cannot be written" in said
        assert len(said.splitlines()) == 1
        assert sorted(tmp_path.iterdir()) == [config]
        assert cli.main([*words, "--log-format", "json"]) == 2
        (line,) = told(capsys)
        assert "--metrics" in line["message"]
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    words = [str(out), str(out), "--superlink", "127.0.0.1:1", "--certificates", "none"]
    bad = ["--metrics", str(tmp_path / "nowhere" / "m.prom"), "--log-format", "json"]
    assert site_process.main([*words, "--port", "1", *bad]) == 2
    (line,) = told(capsys)
    assert line["message"].startswith("--metrics = ")
    assert sorted(tmp_path.iterdir()) == [config]


def test_a_later_write_that_fails_ends_no_round_and_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path / "out")
    place = tmp_path / "metrics"
    place.mkdir()
    with logged("json"), counted(place / "m.prom") as metrics:
        assert metrics is not None
        metrics.addFilter(of_the_server)
        traffic = watched(ran, metrics.carried)
        summed(ran, traffic)
        assert not [line for line in told(capsys) if "--metrics" in line["message"]]
        place.rename(tmp_path / "gone")
        summed(ran, traffic)
        said = [line for line in told(capsys) if "--metrics" in line["message"]]
        assert [line["level"] for line in said] == ["WARNING"]
        assert "is not written: No such file" in said[0]["message"]
        (tmp_path / "gone").rename(place)
        summed(ran, traffic)
    assert figures(place / "m.prom")["rounds_total"] == 3
    assert [path.name for path in place.iterdir()] == ["m.prom"]


def test_a_file_is_renewed_while_nothing_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("audits.deploy.metrics.monotonic", lambda: now[0])
    metrics = Metrics(tmp_path / "m.prom")
    (tmp_path / "m.prom").unlink()
    metrics.beat()
    assert not (tmp_path / "m.prom").exists()
    now[0] += 6
    metrics.beat()
    assert figures(tmp_path / "m.prom")["exchanges_total"] == 0


def test_what_is_waited_for_is_said_when_it_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)
    late = {client: ran.transport.sites.pop(client) for client in (3, 4)}
    looks: list[set[int]] = []

    def addresses() -> list[int]:
        looks.append(set(ran.transport.sites))
        if len(looks) == 3:
            ran.transport.sites.update(late)
        return [1000 + client for client in ran.transport.sites]

    ran.transport.addresses = addresses  # type: ignore[method-assign]
    with logged("json"):
        greet_all(ran.coordinator, Watch(), patience=60, every=0)
        first, *others = events(told(capsys), "waiting")
    assert len(looks) >= 3
    missing = [f"client {number}" for number in range(5)]
    assert (first["hosts"], first["hosts_awaited"], first["wait"]) == (0, 5, 60)
    assert first["missing"] == missing
    assert "0 of 5 hosts are there" in first["message"]
    assert [line["missing"] for line in others] == [missing[3:], []]


def test_who_does_not_come_is_named(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)
    ran.kill(2)
    ran.coordinator.channel.greet()
    with pytest.raises(HostError, match=r"^4 of 5 hosts are there; missing: client 2, after -?0 s"):
        greet_all(ran.coordinator, Watch(), patience=-0.1, every=0)


def test_on_a_terminal_one_line_is_kept_up_to_date(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    watch = Watch(bars=True)
    with logged("text"):
        watch.waits("starts the SuperLink", within=180)
        for there in ([], ["site 1"]):
            watch.waits_for(there, [f"site {n}" for n in range(9)], 300)
        watch.done()
    said = capsys.readouterr().err
    assert "\n" not in said
    assert "starts the SuperLink, at most 180 s" in said
    assert "0 of 9 hosts are there; missing: site 0, site 1, site 2, site 3, site 4 and 4" in said
    assert "1 of 9 hosts are there; missing: site 0, site 2" in said


def test_sites_are_watched_as_the_deployment_is(tmp_path: Path) -> None:
    assert Watch("json").site_words(tmp_path) == ["--log-format", "json"]
    metrics = Metrics(tmp_path / "m.prom")
    words = Watch("text", metrics).site_words(tmp_path)
    given = [str(tmp_path), str(tmp_path), "--superlink", "a:1", "--certificates", "c"]
    parsed = site_process.parser().parse_args([*given, "--port", "1", *words])
    assert (parsed.log_format, parsed.metrics) == ("text", tmp_path / METRICS_NAME)
    mix = [str(tmp_path), "--layer", "0", "--listen", "a:1", "--log-format", "json"]
    assert mix_process.parser().parse_args(mix).log_format == "json"
