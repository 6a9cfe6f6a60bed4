"""Progress of a check, and its duration if real cryptography is carried out."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tqdm import tqdm

from audits.config.audit import AuditConfig
from audits.report.claims import executions_of

_MINUTE = 60.0


@contextmanager
def watched(
    config: AuditConfig, *, n_clients: int, rounds: int, bar: bool
) -> Iterator[Callable[[], None]]:
    """Show the rounds of a check on stderr.

    If layers carry out real cryptography, the amount of work is printed before the start, and after
    the first round the expected time.

    Args:
        config: what is checked.
        n_clients: number of clients of the federation.
        rounds: that are compared.
        bar: whether to draw a progress bar.

    Yields:
        What to call after every round.
    """
    executions = executions_of({**config.protection, **config.bag_protection})
    real = [name for name, execution in executions.items() if execution == "real"]
    size = f"{config.cohort.largest(n_clients)} clients x {rounds} rounds"
    if real:
        what = f"real cryptography ({', '.join(real)}): {size}, all in this process"
        print(f"{what}; the first round tells how long", file=sys.stderr)
    started, done = time.monotonic(), list[float]()
    with tqdm(total=rounds, desc="checking", unit="round", leave=False, disable=not bar) as shown:

        def after_round() -> None:
            shown.update()
            done.append(took := time.monotonic() - started)
            if real and len(done) == 1:
                line = f"real cryptography: {size}, about {_words(took * rounds)}"
                tqdm.write(f"{line} ({_words(took)} a round)", file=sys.stderr)

        yield after_round
        shown.refresh()  # its end is drawn too, however fast it was reached


def _words(seconds: float) -> str:
    """A span of time: ``12 s``, ``9.7 minutes``."""
    if seconds < 2 * _MINUTE:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.3g} minutes"
