"""Turns a matplotlib figure into a small, theme-aware, accessible piece of inline SVG.

Matplotlib writes a stand-alone file: XML prolog, RDF metadata, one ``id`` per element, fixed
colours and fonts. In a page these are useless, and duplicate ids make the page invalid, so
:func:`finish` strips it and binds colours and the font to the page's CSS variables. Each variable
carries the print colour as its fallback, so the chart also works outside the page.
"""

import hashlib
import io
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1c2128"
MUTED = "#5b6472"
RULE = "#d4d9e1"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#aa4499", "#8a6d00", "#117fa8", "#666e7a")
"""Okabe-Ito's order of hues, darkened where needed to reach 3:1 on white paper."""

_VARIABLES = {
    INK: "ink",
    MUTED: "muted",
    RULE: "rule",
    **{colour: f"series-{place}" for place, colour in enumerate(SERIES, start=1)},
}

_STYLE = Path(__file__).with_name("charts.mplstyle")


@contextmanager
def canvas(width: float, height: float) -> Iterator["Figure"]:
    """Opens an empty figure whose look does not depend on the user's matplotlib settings.

    Args:
        width: in inches; 72 SVG units each.
        height: in inches.

    Yields:
        A figure without pyplot state; draw on it and call :func:`finish` inside the block.
    """
    with _undisturbed():
        import matplotlib as mpl  # noqa: PLC0415 - a run without a report never pays for it
        from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(), warnings.catch_warnings():
        # The browser chooses the font, so glyphs missing in matplotlib's font do not matter.
        warnings.filterwarnings("ignore", message=r"Glyph \d+ .* missing from font")
        # Like ``rcdefaults``, without reading all of matplotlib's style sheets.
        mpl.rcParams.update({k: v for k, v in mpl.rcParamsDefault.items() if k != "backend"})
        mpl.rc_file(_STYLE)
        yield Figure(figsize=(width, height))


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Imports matplotlib even if MPLBACKEND is unknown, since SVG does not need a backend.

    Its warnings are suppressed, too: without a cache folder it still finds its fonts.
    """
    named = None if "matplotlib" in sys.modules else os.environ.pop("MPLBACKEND", None)
    log = logging.getLogger("matplotlib")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)
        if named is not None:
            os.environ["MPLBACKEND"] = named
    if named:
        with suppress(ValueError):  # as matplotlib itself does
            sys.modules["matplotlib"].rcParams["backend"] = named


def finish(figure: "Figure", kind: str, title: str, description: str) -> str:
    """Writes a figure as inline SVG with a name and a description for screen readers.

    Args:
        figure: a figure made by :func:`canvas`.
        kind: short name; starts every id the drawing needs.
        title: what the chart is.
        description: what it shows, in words and numbers.

    Returns:
        One ``<svg>`` element, the same bytes for the same figure.
    """
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=nothing)
    drawing = buffer.getvalue()
    opening = re.search(r"<svg[^>]*viewBox=\"([^\"]+)\"[^>]*>", drawing)
    if opening is None:  # pragma: no cover - would be a change of matplotlib's writer
        raise RuntimeError("matplotlib wrote an SVG without a viewBox")
    body = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", drawing[opening.end() :], flags=re.S)
    body = _local_ids(body.replace("xlink:href", "href"), kind)
    for colour, name in _VARIABLES.items():
        body = body.replace(colour, f"var(--{name}, {colour})")
    body = body.replace("'DejaVu Sans'", "var(--sans, sans-serif)")
    body = re.sub(r"\n\s*", "\n", body)
    label = escape(f"{title}. {description}")
    return (
        f'<svg class="chart chart-{kind}" viewBox="{opening[1]}" role="img" aria-label="{label}">'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{body.strip()}"
    )


def _local_ids(body: str, kind: str) -> str:
    """Drops ids nothing refers to and makes the rest unique within a page of several charts."""
    used = set(re.findall(r"(?:url\(#|href=\"#)([^)\"]+)", body))
    digest = hashlib.sha256(body.encode()).hexdigest()[:8]

    def keep(match: re.Match[str]) -> str:
        return f' id="{kind}-{digest}-{match[1]}"' if match[1] in used else ""

    body = re.sub(r' id="([^"]+)"', keep, body)
    return re.sub(r"(url\(#|href=\"#)", rf"\g<1>{kind}-{digest}-", body)
