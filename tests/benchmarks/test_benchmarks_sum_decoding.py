"""The section on what hides in a sum says what was measured, and the command measures it."""

from pathlib import Path

import pytest

from docs import sum_decoding_curve as curve
from docs.sum_decoding_curve import Found


@pytest.fixture(scope="module")
def found() -> Found:
    return curve.read(curve.RESULTS)


def test_the_section_is_that_of_the_record(found: Found) -> None:
    """Every number in it: the table, and the sentences below it."""
    page = curve.PAGE.read_text(encoding="utf-8")
    assert set(found) == set(curve.cases(curve.DATA))
    assert "\n".join(curve.section(found)) in page


def test_nothing_certain_was_false(found: Found) -> None:
    assert not any(row.wrong for rows in found.values() for row in rows)


def test_what_is_paid_is_stated(found: Found) -> None:
    """Floors and noise end exact sums, a floor keeps rows back, and of noise no sum is solved."""
    for case, rows in found.items():
        assert all(row.lossless == (not case.floor and not case.epsilon) for row in rows)
        assert (rows[0].kept_back > 0) == (case.floor > 1)
        assert not case.epsilon or all(row.reason and not row.exposed for row in rows)


def test_what_is_measured_is_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small generated federation: lone raters are read, with the seed beyond a floor as well."""
    results = tmp_path / "small.csv"
    first = curve.measured(curve.QUICK, results)
    plain, floor, ring = (first[case] for case in curve.cases(curve.QUICK))
    assert plain[0].exposed > 0
    assert floor[0].exposed < plain[0].exposed <= plain[1].exposed
    assert floor[1].exposed > 0
    assert [row.exposed for row in ring[:2]] == [0, 0]
    assert ring[0].reason
    monkeypatch.setattr(curve, "measure", pytest.fail)
    assert str(curve.measured(curve.QUICK, results)) == str(first)  # a number that is none differs
    assert len(curve.table(first)) == 2 + len(first)


def test_quick_prints_a_table_and_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = next(iter(curve.read(curve.RESULTS).values()))
    monkeypatch.setattr(curve, "measure", lambda case: told)
    monkeypatch.setattr("sys.argv", ["sum_decoding_curve", "--quick"])
    before = curve.RESULTS.stat().st_mtime_ns
    curve.main()
    assert capsys.readouterr().out.count("| small |") == len(curve.cases(curve.QUICK))
    assert curve.RESULTS.stat().st_mtime_ns == before
