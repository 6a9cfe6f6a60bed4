"""Draws the first page of a report as a browser shows it; docs/report.png is the quickstart's.

Run from the repository, with a Chromium on the PATH:

    secure-fedrec audit --out out/quickstart
    python -m docs.report_picture out/quickstart/report.html docs/report.png
"""

import argparse
from pathlib import Path

from tests.chromium import find_chromium, running

WIDTH, BELOW = 1280, 24
END = "document.querySelector('#verdict').getBoundingClientRect().bottom"


def main() -> None:
    """Draw it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("report", type=Path, help="a report.html")
    parser.add_argument("out", type=Path, help="where the picture goes")
    arguments = parser.parse_args()
    browser = find_chromium()
    if browser is None:
        raise SystemExit("no Chromium on the PATH")
    with running(browser) as chromium:
        chromium.open(arguments.report.resolve(), width=WIDTH)
        end = int(chromium.value(END))
        arguments.out.write_bytes(chromium.picture(height=end + BELOW))


if __name__ == "__main__":
    main()
