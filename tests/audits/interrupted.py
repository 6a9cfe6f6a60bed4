"""Programs that end by signals, as processes of their own."""

import signal
import subprocess
import sys
from pathlib import Path

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def hear_all() -> None:
    """A suite that runs in the background is born deaf to interrupts, and so are its children."""
    for ending in ENDINGS:
        signal.signal(ending, signal.SIG_DFL)


def ended(
    *words: str | Path, env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run Python with some words, every signal heard, to its end."""
    return subprocess.run(  # noqa: S603
        [sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        env=env,
        timeout=100,
        preexec_fn=hear_all,
    )
