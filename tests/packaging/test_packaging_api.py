"""What is public and stable: a name or a signature of it does not change without notice."""

import dataclasses
import inspect
from collections.abc import Iterator
from pkgutil import resolve_name

import pytest

import audits
import audits.testing
import secure_fedrec.engines.loop
import secure_fedrec.recording
from tests.public_api import STABLE


def signature(found: object) -> str:
    """Parameters and defaults of a function, or what a result has."""
    if not isinstance(found, type) or not dataclasses.is_dataclass(found):
        assert callable(found)
        return f"({', '.join(_parameters(inspect.signature(found)))})"
    fields = [each.name for each in dataclasses.fields(found)]
    own = (name for name in dir(found) if not name.startswith("_") and name not in fields)
    return ", ".join((*fields, *(f"{name}{_called(found, name)}" for name in own)))


def _called(kind: type, name: str) -> str:
    value = inspect.getattr_static(kind, name)
    if isinstance(value, property):
        return ""
    if isinstance(value, classmethod):
        return signature(value.__func__).replace("(cls, ", "(")
    return signature(value).replace("(self, ", "(").replace("(self)", "()")


def _parameters(found: inspect.Signature) -> Iterator[str]:
    star = False
    for name, each in found.parameters.items():
        if each.kind is each.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        if each.kind is each.VAR_KEYWORD:
            yield f"**{name}"
        elif each.default is each.empty:
            yield name
        else:
            yield f"{name}={'...' if name == 'command' else repr(each.default)}"


def test_what_is_public_is_what_the_table_has() -> None:
    listed = {f"audits.{name}" for name in audits.__all__}
    for module in (audits.testing, secure_fedrec.engines.loop, secure_fedrec.recording):
        listed |= {f"{module.__name__}.{name}" for name in module.__all__}
    assert listed == set(STABLE)


@pytest.mark.parametrize(("name", "told"), STABLE.items())
def test_a_signature_is_that_of_the_table(name: str, told: str | None) -> None:
    home, _, last = name.rpartition(".")
    found = resolve_name(f"{home}:{last}")
    assert told is None or signature(found) == told


def test_everything_public_says_what_it_raises_and_gives() -> None:
    for name in audits.__all__:
        found = getattr(audits, name)
        text = inspect.getdoc(found) or ""
        assert "Args:" in text, name
        if not isinstance(found, type):
            assert "Returns:" in text and "Raises:" in text, name
