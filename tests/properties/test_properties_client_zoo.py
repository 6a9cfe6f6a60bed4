"""Every client step of the zoo is on its side."""

import pytest

from tests.properties.client_zoo import Entry, check, verdict
from tests.properties.client_zoo_broken import OPEN, SENT
from tests.properties.client_zoo_disguises import DISGUISED
from tests.properties.client_zoo_honest import HONEST
from tests.properties.client_zoo_others import OTHERS

ZOO: dict[str, Entry] = HONEST | SENT | DISGUISED | OTHERS | OPEN
KINDS = ("who is equal", "who is near", "who is opposite", "who is large", "who is zero")


@pytest.mark.parametrize("name", ZOO)
def test_a_step_is_on_its_side(name: str) -> None:
    entry = ZOO[name]
    report = check(entry.build(), trials=9 if name in KINDS else 2)
    assert verdict(report) == entry.due, report
    assert {(each.kind, each.parameter) for each in report.violations} == entry.found, report
