"""Hosts in one process do not wait for the disk: nothing here loses power."""

import os

import pytest

from secure_fedrec.protection.masking import find_parameters
from secure_fedrec.protection.masking.config import policy


@pytest.fixture(autouse=True)
def _no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def sparse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs are sparse, and beacons due, from four clients on instead of 129."""
    assert find_parameters.__kwdefaults__ is not None
    monkeypatch.setitem(find_parameters.__kwdefaults__, "complete_up_to", 3)
    monkeypatch.setattr(policy, "COMPLETE_UP_TO", 3)
