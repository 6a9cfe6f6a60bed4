"""The log of a host's process on standard error: lines for people, or a JSON object per line."""

import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from typing_extensions import override

from audits.terminal import say

_TEXT = "%(asctime)s %(name)s %(levelname)s %(message)s"
_OURS = "secure-fedrec"


class JsonLines(logging.Formatter):
    """A record as one JSON object: time, level, logger and message, and its fields as keys."""

    @override
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


class _Said(logging.Handler):
    """Prints a line above the progress bar, if one is shown."""

    @override
    def filter(self, record: logging.LogRecord) -> bool:
        """Of other packages' records, pass only warnings; their loggers may let anything pass."""
        return record.levelno >= (logging.INFO if record.name == _OURS else logging.WARNING)

    @override
    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record))


@contextmanager
def logged(log_format: str) -> Iterator[None]:
    """Print log records: of this package from level INFO on, of others from WARNING on.

    Args:
        log_format: ``text`` or ``json``. As JSON, warnings are logged too.
    """
    root, ours, machines = logging.getLogger(), logging.getLogger(_OURS), log_format == "json"
    handler = _Said()
    handler.setFormatter(JsonLines() if machines else logging.Formatter(_TEXT))
    before, shown = ours.level, warnings.showwarning
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    logging.captureWarnings(machines)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        warnings.showwarning = shown
        root.removeHandler(handler)
        ours.setLevel(before)


def take_over(log_format: str) -> None:
    """Print Flower's log in the same format, if it is JSON.

    Its logger gets a handler of its own when it is imported; call this afterwards.
    """
    if log_format == "json":
        flower = logging.getLogger("flwr")
        flower.handlers.clear()
        flower.propagate = True


def spoken(problem: str) -> str:
    """The last message of a command that is refused or interrupted, as an object."""
    record = logging.LogRecord(_OURS, logging.ERROR, __file__, 0, problem, (), None)
    return JsonLines().format(record)
