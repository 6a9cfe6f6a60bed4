"""Events with the fields that a test does not care about filled in."""

from collections.abc import Callable

import pytest

from secure_fedrec.protection.dp import Event


@pytest.fixture(scope="session")
def event() -> Callable[..., Event]:
    def make(mechanism: object, **changes: object) -> Event:
        fields: dict[str, object] = {
            "mechanism": mechanism,
            "covers": "one client's whole contribution to a round",
            "adjacency": "zero-out",
            "noised_against": ("server", "release"),
            **changes,
        }
        return Event(**fields)  # type: ignore[arg-type]

    return make
