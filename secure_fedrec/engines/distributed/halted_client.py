"""Rounds that a client sits out for what its own data came to, and where its part is halted.

Training or encoding may fail on a client's own data: it sits the round out, and takes part in the
next. But a server may name any public state or model, such as a row so large that only who rated
the item overflows, and a silence that follows from data is an answer, one for each round. So a
client sits out a few such rounds (``MOST_SAT_OUT``), and then its part is halted until its owner
has looked. A client that has nothing to send, whatever the state, tells nothing new.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception

from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import HaltedError, RefusalError, SitsOutError

log = logging.getLogger("secure-fedrec")

_MOST_TRACE = 8_000
"""Characters of what is written down of a failure."""
MOST_SAT_OUT = 3
"""Rounds that a client sits out for what its own data came to, until its owner has looked."""


def _text(path: Path) -> str:
    """What stands in a file, whoever wrote in it."""
    return path.read_text(encoding="utf-8", errors="replace")


class HaltedClient:
    """Whether a client's part is halted; a file says so, for whatever process comes next.

    Args:
        folder: the site's own.
    """

    def __init__(self, folder: Path) -> None:
        self._mark = folder / "halted"
        self._sat_out = folder / "sat-out"
        self._unwritten: bytes | None = None

    def require_active(self) -> None:
        """Check that the part goes on.

        Raises:
            HaltedError: it does not.
            OSError: nor can it be written down.
        """
        self._write()
        if self._mark.exists():
            raise HaltedError(
                f"this client's part was halted, {self._mark} says why; remove it to go on"
            )

    @property
    def reason(self) -> str | None:
        """What halted it; None where it goes on.

        Raises:
            OSError: it cannot be read.
        """
        if not self._mark.exists():
            return None
        return _text(self._mark) or "why could not be written down: its disk was full"

    @property
    def sat_out(self) -> int:
        """Rounds that were sat out for what this client's own data came to, since ``resume``.

        Raises:
            OSError: it cannot be read.
        """
        first = self._noted.partition("\n")[0]
        if (first.isdecimal() and len(first) < 9) or not self._noted:
            return int(first or 0)
        return MOST_SAT_OUT  # what somebody has written into it must not end the counting

    @property
    def history(self) -> Path:
        """The file of all that has halted it before."""
        return self._mark.with_name("resumed")

    def resume(self, word: str) -> None:
        """Let the part go on; what halted it is kept, with the owner's word.

        Raises:
            OSError: it cannot be written; then the part stays halted.
        """
        before = _text(self.history) if self.history.exists() else ""
        told = f"{before}{self._noted}{self.reason or ''}resumed: {word}\n\n"
        kept = told.encode(errors="backslashreplace")  # an owner's word may be any bytes
        replace_file(self.history, kept, private=True, durable=True)
        self._sat_out.unlink(missing_ok=True)
        self._mark.unlink(missing_ok=True)

    @contextmanager
    def on_own_data(self, *passed: type[Exception]) -> Iterator[None]:
        """Around what is computed from the client's own data.

        Args:
            passed: exceptions from elsewhere, which do not answer for the data: of messages,
                of a disk; where the computation itself can raise none such.

        Raises:
            SitsOutError: in the place of any other exception, but for an interrupt by the owner;
                or the computation has raised it itself, which is not counted.
            HaltedError: in its place, where as many rounds were sat out as may be.
            OSError: it could not be written down; the part stays silent until it is.
        """
        try:
            yield
        except BaseException as failure:  # some libraries' errors are no ``Exception``
            if isinstance(failure, (KeyboardInterrupt, SitsOutError, *passed)):
                raise
            trace = "".join(format_exception(failure))[-_MOST_TRACE:]
            self._unwritten = trace.encode(errors="backslashreplace")
            self._write()
            kind = f"{type(failure).__name__} on this client's own data"
            if self._mark.exists():
                raise HaltedError(
                    f"{kind}, after {MOST_SAT_OUT} rounds that were sat out: its part is halted, "
                    f"or the server would learn from every such silence; {self._mark} says why, "
                    "remove it to go on"
                ) from failure
            log.warning("%s: %s says why", kind, self._sat_out)
            told = isinstance(failure, RefusalError)
            why = str(failure) if told else "what it computed cannot be sent"
            raise SitsOutError(f"sits this round out: {why}") from failure

    @property
    def _noted(self) -> str:
        return _text(self._sat_out) if self._sat_out.exists() else ""

    def _write(self) -> None:
        """Write down what could not be written yet, if there is anything."""
        if self._unwritten is None:
            return
        try:
            noted, count = self._noted, self.sat_out
            if count >= MOST_SAT_OUT:
                replace_file(self._mark, self._unwritten, private=True, durable=True)
            else:
                told = f"{count + 1}\n{noted.partition(chr(10))[2]}".encode()
                told += self._unwritten + b"\n"
                replace_file(self._sat_out, told, private=True, durable=True)
        except OSError:
            # A silence that is not counted would be one of many: an empty file may still find room.
            self._mark.touch(mode=0o600)
            raise
        self._unwritten = None
