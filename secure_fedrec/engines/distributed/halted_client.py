"""Where a client's own data decide whether it answers, it answers no more: its part is halted.

A server may name any public state or model. Were a client silent whenever training or encoding
fails on its data, and there again afterwards, the server would read those data from its silences,
one question an attempt: a row so large that only who rated the item overflows, and so on. So such
a failure ends the client's part until its owner has looked, and the server has one answer in all.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import format_exception

from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import HaltedError


class HaltedClient:
    """Whether a client's part is halted; a file says so, for whatever process comes next.

    Args:
        folder: the site's own.
    """

    def __init__(self, folder: Path) -> None:
        self._mark = folder / "halted"
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

    @contextmanager
    def on_own_data(self, *passed: type[Exception]) -> Iterator[None]:
        """Around what is computed from the client's own data.

        Args:
            passed: exceptions that come from elsewhere, and halt nothing: of messages, of a disk;
                where the computation itself can raise none such.

        Raises:
            HaltedError: in the place of any other exception, but for an interrupt by the owner.
            OSError: it could not be written down why the part is halted; it is.
        """
        try:
            yield
        except BaseException as failure:  # some libraries' errors are no ``Exception``
            if isinstance(failure, (KeyboardInterrupt, *passed)):
                raise
            self._unwritten = "".join(format_exception(failure)).encode()
            self._write()
            raise HaltedError(
                f"{type(failure).__name__} on this client's own data: its part is halted, or the "
                f"server would learn from every such silence; {self._mark} says why, remove it to "
                "go on"
            ) from failure

    def _write(self) -> None:
        """Write the mark, if there is one that could not be written yet."""
        if self._unwritten is not None:
            replace_file(self._mark, self._unwritten, private=True, durable=True)
            self._unwritten = None
