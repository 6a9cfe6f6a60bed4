"""The page as a browser shows it: lengths, widths, headings, requests, paper and accessibility.

Needs a Chromium on the PATH; the checks of axe-core also its ``axe.min.js``, in ``node_modules`` or
where SECURE_FEDREC_AXE points (``npm pack axe-core`` gives it).
"""

import itertools
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audits.report import render_html
from tests.audits.saved_reports import SAVED, saved
from tests.audits.test_report import schema_problems
from tests.chromium import Chromium, Scheme, find_chromium, running

ROOT = Path(__file__).parents[2]
SCREEN = 1280, 800
PHONE = 390
PAGES = 6


def axe_source() -> str:
    named = os.environ.get("SECURE_FEDREC_AXE")
    path = Path(named) if named else ROOT / "node_modules" / "axe-core" / "axe.min.js"
    if not path.is_file():
        pytest.skip("axe-core is not installed: name its axe.min.js in SECURE_FEDREC_AXE")
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    found = find_chromium()
    if found is None:
        pytest.skip("no Chromium on the PATH")
    with running(found) as chromium:
        yield chromium


@pytest.fixture(scope="module", params=SAVED)
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / f"{request.param}.html"
    path.write_text(render_html(saved(request.param)), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_report_is_one_of_today(name: str) -> None:
    report = saved(name)
    assert schema_problems(report) == []
    assert {"remedies"} <= set(report)
    assert {finding.get("claimed") for finding in report["findings"]} <= {True, False}


def test_saved_reports_end_in_every_way() -> None:
    outcomes = {saved(name)["verdict"]["outcome"] for name in SAVED}
    assert outcomes == {"pass", "fail", "inconclusive", "leaks as documented"}
    assert any(
        finding["status"] != "measured" for name in SAVED for finding in saved(name)["findings"]
    )


def test_page_one_fits_a_screen_and_a_half(browser: Chromium, page: Path) -> None:
    width, height = SCREEN
    browser.open(page, width=width, height=height)
    ends = browser.value("document.querySelector('#verdict').getBoundingClientRect().bottom")
    assert 200 < ends <= 1.5 * height
    everything = browser.value("document.documentElement.scrollHeight")
    assert everything < 7_000


def test_a_page_asks_for_nothing(browser: Chromium, page: Path) -> None:
    browser.open(page, width=SCREEN[0])
    assert browser.requested == [page.as_uri()]
    assert browser.value("document.scripts.length") == 0


@pytest.mark.parametrize("width", [SCREEN[0], PHONE, 320])
def test_nothing_is_cut_or_scrolls_sideways(browser: Chromium, page: Path, width: int) -> None:
    browser.open(page, width=width, height=844)
    browser.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    assert browser.value("document.documentElement.scrollWidth") <= width
    beyond = browser.value(
        """[...document.querySelectorAll('body *:not(.cards thead *):not(.cards thead)')]
            .filter(each => !each.closest('svg'))
            .map(each => [each, each.getBoundingClientRect()])
            .filter(([, box]) => box.width > 0 && (box.right > innerWidth + 1 || box.left < -1))
            .map(([each]) => each.outerHTML.slice(0, 120))"""
    )
    assert beyond == []
    scrolling = browser.value(
        """[...document.querySelectorAll('body *')]
            .filter(each => ['auto', 'scroll'].includes(getComputedStyle(each).overflowX))
            .map(each => each.outerHTML.slice(0, 120))"""
    )
    assert scrolling == []
    cut = browser.value(
        """[...document.querySelectorAll('svg text')]
            .map(each => [each.textContent, each.getBoundingClientRect(),
                          each.closest('svg').getBoundingClientRect()])
            .filter(([, box, all]) => box.right > all.right + 2 || box.left < all.left - 2
                                      || box.bottom > all.bottom + 2 || box.top < all.top - 2)
            .map(([words]) => words)"""
    )
    assert cut == []


def test_headings_come_in_order(browser: Chromium, page: Path) -> None:
    browser.open(page, width=SCREEN[0])
    levels = browser.value(
        "[...document.querySelectorAll('h1,h2,h3,h4,h5,h6')].map(each => +each.tagName[1])"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert len(levels) > 6
    steps = itertools.pairwise(levels)
    assert all(after <= before + 1 for before, after in steps)


def test_the_words_hold_no_json_and_no_endless_numbers(browser: Chromium, page: Path) -> None:
    browser.open(page, width=SCREEN[0])
    words = browser.value("document.body.textContent")
    assert not re.findall(r"\d\.\d{6,}", words)
    assert not re.findall(r"[\[{]\s*\"|\":\s", words)
    assert not re.findall(r"\b(?:nan|None)\b", words)


def test_on_paper_it_has_six_pages_at_most(browser: Chromium, page: Path) -> None:
    browser.open(page, width=SCREEN[0])
    sheets = re.findall(rb"/Type\s*/Page\b", browser.pdf())
    assert 1 < len(sheets) <= PAGES


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [SCREEN[0], PHONE])
def test_axe_finds_nothing(browser: Chromium, page: Path, width: int, scheme: Scheme) -> None:
    source = axe_source()
    browser.open(page, width=width, scheme=scheme)
    browser.value("document.querySelectorAll('details').forEach(each => each.open = true)")
    browser.value(f"{source}; 0")
    found: dict[str, Any] = browser.value("axe.run(document, {resultTypes: ['violations']})")
    told = [
        (each["id"], node["html"][:160], node.get("failureSummary", "")[:200])
        for each in found["violations"]
        for node in each["nodes"][:3]
    ]
    assert told == []
    assert len(found["passes"]) > 15


def test_both_schemes_are_drawn(browser: Chromium, page: Path) -> None:
    shades = []
    for scheme in ("light", "dark"):
        browser.open(page, width=SCREEN[0], scheme=scheme)
        shades.append(browser.value("getComputedStyle(document.body).backgroundColor"))
    assert shades[0] != shades[1]
    browser.media("print", "dark")  # ink is dear: print is light, whatever the screen was
    assert browser.value("getComputedStyle(document.body).backgroundColor") == shades[0]


def test_words_without_an_end_are_broken(browser: Chromium, tmp_path: Path) -> None:
    endless = "x" * 300
    report = saved("red")
    report["title"] = endless
    report["verdict"]["summary"] = endless
    report["protection"]["system"] = endless
    report["configuration"] = {endless: endless}
    report["manifest"]["command"] = endless
    for entry in (*report["findings"], *report["gates"]):
        entry["adversary"] = entry["adversary"] and endless
        entry["attack"] = entry["attack"] and endless + entry["attack"]
    for entry in report["findings"]:
        entry["sentence"] = endless
    page = tmp_path / "endless.html"
    page.write_text(render_html(report), encoding="utf-8")
    for width in (SCREEN[0], PHONE):
        browser.open(page, width=width)
        browser.value("document.querySelectorAll('details').forEach(each => each.open = true)")
        assert browser.value("document.documentElement.scrollWidth") <= width


def test_a_reader_without_a_mouse_reaches_what_is_folded(browser: Chromium, page: Path) -> None:
    browser.open(page, width=SCREEN[0])
    folded = browser.value(
        "[...document.querySelectorAll('details')].map(each => each.firstElementChild.tagName)"
    )
    assert len(folded) > 2
    assert set(folded) == {"SUMMARY"}
