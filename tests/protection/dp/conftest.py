"""A generator with a fixed key, for the tests that need the same noise twice."""

from collections.abc import Callable, Iterator

import pytest

from secure_fedrec.protection.dp import sampler


@pytest.fixture
def fixed_key(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Calling it makes the next keys a function of a number; nothing in the package can do that."""

    def fix(number: int) -> None:
        state = [number]

        def token_bytes(size: int) -> bytes:
            state[0] += 1
            return state[0].to_bytes(size, "little")

        monkeypatch.setattr(f"{sampler.__name__}.secrets.token_bytes", token_bytes)

    yield fix
    monkeypatch.undo()
