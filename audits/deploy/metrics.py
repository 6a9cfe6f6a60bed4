"""Metrics of one host, in the text format of Prometheus.

Counts come from what the host logs (``round_log``) and from the bytes that it carries, so the file
reveals no more than the log: numbers, and refusals by the kind of their error. It is written beside
its place and moved there, by Prometheus' own client library. The process of a site writes it as
often as its SuperNode answers, the server as often as it looks for its hosts, so an old file means
that the process hangs or has ended.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from secure_fedrec.errors import ConfigError, brought_by

if TYPE_CHECKING:
    from prometheus_client import Gauge

_LOGGER = "secure-fedrec"
_EVERY = 5.0
_GAUGES = {
    "round": "number of the last round",
    "participants": "clients in the sum of the last round",
    "invited": "clients that were invited to the last round",
    "epsilon_spent": "price of the noised uploads of one client so far",
    "epsilon_left": "what is left of the price of all rounds",
}


class Metrics(logging.Handler):
    """The counts of one host, and the file that they are written to.

    Args:
        path: the file.

    Raises:
        MissingExtraError: Prometheus' client library is not installed.
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(logging.INFO)
        with brought_by("metrics", "--metrics"):
            import prometheus_client  # noqa: PLC0415 - an extra brings it
        self._path = path
        self._registry = prometheus_client.CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self._failed = False
        self._written = 0.0

        def counter(name: str, about: str, *labels: str) -> prometheus_client.Counter:
            return prometheus_client.Counter(
                f"secure_fedrec_{name}", about, labels, registry=self._registry
            )

        self._rounds = counter("rounds", "rounds that were summed; of a site, uploads that it sent")
        self._exchanges = counter("exchanges", "messages there and answers back")
        self._bytes = counter("bytes", "of messages, in and out", "direction")
        self._refusals = counter("refusals", "of messages and of hosts, by error", "kind")
        self._left_out = counter("left_out", "clients that were invited and are not in the sum")
        self._seconds = prometheus_client.Summary(
            "secure_fedrec_round_seconds",
            "that rounds took; of a site, until its upload",
            registry=self._registry,
        )
        for direction in ("in", "out"):
            self._bytes.labels(direction)
        try:
            self._write()
        except OSError as failure:
            problem = f"cannot be written: {failure.strerror}"
            raise ConfigError("--metrics", str(path), problem) from None

    @override
    def emit(self, record: logging.LogRecord) -> None:
        fields: dict[str, Any] = getattr(record, "fields", {})
        event = fields.get("event")
        if event == "refused":
            self._refusals.labels(fields["refused"]).inc()
        elif event == "left-out":
            self._left_out.inc()
        elif event == "round":
            self._rounds.inc()
            self._seconds.observe(fields["seconds"])
            for name in _GAUGES.keys() & fields.keys():
                self._gauge(name).set(fields[name])
        if event is not None:
            self.write()

    def carried(self, out: int, back: int) -> None:
        """Count an exchange, by the bytes that went out and came in."""
        self._exchanges.inc()
        self._bytes.labels("out").inc(out)
        self._bytes.labels("in").inc(back)
        self.write()

    def answering(self, answer: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
        """Count the messages that a site's handler answers; a refused message has no bytes out."""

        def counted(data: bytes) -> bytes:
            given = b""
            try:
                given = answer(data)
            finally:
                self.carried(len(given), len(data))
            return given

        return counted

    def beat(self) -> None:
        """Write the file as a sign of life, if it was not written for some seconds."""
        if monotonic() - self._written > _EVERY:
            self.write()

    def write(self) -> None:
        """Write the file; a failure is logged once, and does not end the process."""
        try:
            self._write()
        except OSError as failure:
            if not self._failed:
                said = self._path, failure.strerror
                logging.getLogger(_LOGGER).warning("--metrics %s is not written: %s", *said)
            self._failed = True
        else:
            self._failed = False

    def _write(self) -> None:
        import prometheus_client  # noqa: PLC0415 - an extra brings it

        self._written = monotonic()
        prometheus_client.write_to_textfile(str(self._path), self._registry)

    def _gauge(self, name: str) -> "Gauge":
        """Make a gauge when it first has a value: an unmeasured gauge is absent instead of 0."""
        from prometheus_client import Gauge  # noqa: PLC0415 - an extra brings it

        if name not in self._gauges:
            about = _GAUGES[name]
            self._gauges[name] = Gauge(f"secure_fedrec_{name}", about, registry=self._registry)
        return self._gauges[name]


@contextmanager
def counted(path: Path | None) -> Iterator[Metrics | None]:
    """The metrics of this process, fed by its log; None without a file for them.

    Raises:
        MissingExtraError, ConfigError: as ``Metrics``.
    """
    if path is None:
        yield None
        return
    metrics, log = Metrics(path), logging.getLogger(_LOGGER)
    log.addHandler(metrics)
    try:
        yield metrics
    finally:
        log.removeHandler(metrics)
        metrics.write()
