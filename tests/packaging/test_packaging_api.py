"""What ``import audits`` gives: a name or a signature changes only where the changelog says so."""

import dataclasses
import inspect
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name

import pytest

import audits
import audits.testing
import secure_fedrec.engines.loop
import secure_fedrec.recording

ROOT = Path(audits.__file__).parents[1]

API = {
    "audits.audit": "(config, *, gates=None, adversaries=None, attacks=None, out=None, "
    "data_dir=None, overrides=None, resume=False, "
    "fail_on=(), baseline=None, formats=('json', 'html'), progress=False, tell=None, command=...)",
    "audits.simulate": "(config, *, out=None, data_dir=None, overrides=None, resume=False, "
    "progress=False, tell=None)",
    "audits.attack": "(recording, *, attacks=None, adversaries=None, progress=False)",
    "audits.plan": "(deployment=None, **settings)",
    "audits.AuditResult": "report, verdict, files, folder, holds, save(directory, *, "
    "formats=('json', 'html')), seed, to_frame()",
    "audits.AttackResult": "findings, undecided, seed, to_frame()",
    "audits.SimulatedRun": "config, folder, history, save(directory), seed",
    "audits.testing.assert_no_leak": "(audited, *, attack, adversary, data_dir=None, **bounds)",
    "secure_fedrec.engines.loop.protect": "(model, *, clients, clip, rounds=None, epsilon=None, "
    "delta=None, cohort=None, **settings)",
    "secure_fedrec.engines.loop.Protection": "(model, terms, *, clients, cohort=None, delta=None)",
    "secure_fedrec.engines.loop.RoundMean": "model, clients, missing, weight, round",
    "secure_fedrec.recording.Recorder": "(*, n_clients, arrays, items=None, data=None, "
    "algorithm=None, rows=None, sums=None, private=None, weighted=False, send_models=False, "
    "directory=None, payload_rounds=None, leave_out=(), ring=None)",
    "secure_fedrec.recording.Recording": "transcript, seen, hidden, secrets, new(public, "
    "directory), open(directory, *, truth=None), save(directory, *, truth=None), "
    "save_truth(path), truth",
    "secure_fedrec.recording.validate": "(directory, *, truth=None)",
    "secure_fedrec.recording.RowTraits": None,
    "secure_fedrec.recording.Traits": None,
    "secure_fedrec.recording.OTHER_ROWS": None,
    "secure_fedrec.recording.SENT_AS_THEY_ARE": None,
    "secure_fedrec.recording.SENT_HIDDEN": None,
    "audits.testing.assert_lossless": None,
    "audits.testing.assert_split_personalization": None,
}
"""Names and signatures; None of what is handed on, and is another module's to change."""


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
    assert listed == set(API)


@pytest.mark.parametrize(("name", "told"), API.items())
def test_a_signature_is_that_of_the_table_and_of_the_changelog(name: str, told: str | None) -> None:
    home, _, last = name.rpartition(".")
    found = resolve_name(f"{home}:{last}")
    changelog = " ".join((ROOT / "CHANGELOG.md").read_text(encoding="utf-8").split())
    if told is None:
        assert f"`{last}`" in changelog
        return
    assert signature(found) == told
    between = "" if told.startswith("(") else ": "
    assert f"`{name}{between}{told}`" in changelog, "the changelog does not say so"


def test_everything_public_says_what_it_raises_and_gives() -> None:
    for name in audits.__all__:
        found = getattr(audits, name)
        text = inspect.getdoc(found) or ""
        assert "Args:" in text, name
        if not isinstance(found, type):
            assert "Returns:" in text and "Raises:" in text, name
