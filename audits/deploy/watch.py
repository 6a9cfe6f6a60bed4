"""How a deployment is watched while it runs: its log, its metrics, and what it waits for."""

import sys
from collections.abc import Collection
from pathlib import Path
from time import monotonic
from typing import Never

from tqdm import tqdm

from audits.deploy.metrics import Metrics
from secure_fedrec.engines.distributed.round_log import log, with_fields

_NAMED = 5
_EVERY = 1.0
METRICS_NAME = "metrics.prom"
"""Name of the metrics file of a site that ``deploy`` starts, in the site's folder."""


class Watch:
    """Messages while hosts start, and how the processes of sites are watched.

    On a terminal what is waited for is one line that is kept up to date; elsewhere it is a line of
    the log whenever it changes.

    Args:
        log_format: of the sites that are started here.
        metrics: metrics of this process; None if neither it nor the sites keep metrics.
        bars: whether progress bars are shown.
    """

    def __init__(
        self, log_format: str = "text", metrics: Metrics | None = None, *, bars: bool = False
    ) -> None:
        self._log_format = log_format
        self._metrics = metrics
        self._live = bars and sys.stderr.isatty()
        self._line: tqdm[Never] | None = None
        self._shown = 0.0
        self._last = ""

    def site_words(self, own: Path) -> list[str]:
        """Options of a site's process, by its folder."""
        words = ["--log-format", self._log_format]
        return words if self._metrics is None else [*words, "--metrics", str(own / METRICS_NAME)]

    def carried(self, out: int, back: int) -> None:
        """Count an exchange (``Metrics.carried``)."""
        if self._metrics is not None:
            self._metrics.carried(out, back)

    def waits(self, what: str, *, within: float | None = None) -> None:
        """Print what is being done before hosts are present.

        Args:
            what: the activity, as a clause.
            within: seconds that it may take.
        """
        self._say(what if within is None else f"{what}, at most {within:.0f} s", wait=within)

    def waits_for(self, there: Collection[str], awaited: Collection[str], within: float) -> str:
        """Say which hosts are missing.

        Args:
            there: names of the hosts that are present.
            awaited: names of all hosts.
            within: seconds to wait, in total.

        Returns:
            The same in words.
        """
        missing = [name for name in awaited if name not in there]
        names = ", ".join(missing[:_NAMED])
        if len(missing) > _NAMED:
            names += f" and {len(missing) - _NAMED} more"
        found = f"{len(awaited) - len(missing)} of {len(awaited)} hosts are there"
        words = f"{found}; missing: {names}" if missing else found
        self._say(
            f"{words}; waits at most {within:.0f} s" if missing else words,
            hosts=len(awaited) - len(missing),
            hosts_awaited=len(awaited),
            missing=missing,
            wait=within,
        )
        return words

    def done(self) -> None:
        """End the waiting line."""
        if self._line is not None:
            self._line.close()
            self._line = None

    def _say(self, text: str, **fields: object) -> None:
        if self._metrics is not None:
            self._metrics.beat()
        changed, self._last = text != self._last, text
        if not self._live:
            if changed:
                log.info("%s", text, extra=with_fields(event="waiting", **fields))
            return
        line = self._line
        if line is None:
            line = self._line = tqdm(bar_format="{desc} [{elapsed}]", leave=False)
        if changed or monotonic() - self._shown >= _EVERY:
            self._shown = monotonic()
            line.set_description_str(text)
