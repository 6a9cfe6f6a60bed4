"""What an audit assumes about a system, or about a data set without a system.

    class TestMine(SystemContract):
        system = SYSTEM

``require_system`` and ``require_data`` need no data, and are also asked of plug-ins.
"""

import re
from collections.abc import Mapping
from dataclasses import fields
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

from attacks.suite import SUITE
from audits.system import DataKind, Statement, System
from secure_fedrec.evaluation import FIGURES
from secure_fedrec.protection import BAG_RECORDS, RECORDS, Claim
from secure_fedrec.settings import Settings
from secure_fedrec.testing.said import require, unsaid


def require_system(system: Any) -> None:
    """Check what a system states: its data sets, attacks and claims.

    Raises:
        AssertionError: names what is missing or unknown.
    """
    require(isinstance(system, System), "is not a System")
    require(
        bool(re.fullmatch(r"[\w.-]+", system.name)),
        "does not have a name of letters, digits and '-'",
    )
    require(isinstance(system.kinds, Mapping) and bool(system.kinds), "does not name a data set")
    for name, kind in system.kinds.items():
        require_data(kind, f"on {name}: ")
    require(system.default_data in system.kinds, "has an unknown default data set")
    _require_claims(system.claims, RECORDS)
    _require_claims(system.bag_claims, BAG_RECORDS)
    for name in system.attacks:
        require(name in SUITE, f"is read by an unknown attack {name!r}")
    for name in system.libraries:
        try:
            version(name)
        except PackageNotFoundError:
            raise AssertionError(f"is decided by {name}, which is not installed") from None
    for part in ("load", "statement", "lossless", "check", "gives_to_bags"):
        require(callable(getattr(system, part)), f"has a {part} that cannot be called")


def _require_claims(claims: Any, layers: Mapping[str, Any]) -> None:
    require(isinstance(claims, Mapping), "has claims that are not a mapping of stacks")
    for stack, claim in claims.items():
        named = " + ".join(stack) or "no layer"
        unknown = [name for name in stack if name not in layers]
        require(not unknown, f"makes a claim about {named}, but {unknown} are not layers")
        require(isinstance(claim, Claim), f"does not make a claim about {named}")
        for text in ("system", "hides", "assumes", "found"):
            require(bool(getattr(claim, text)), f"with {named} does not say what it {text}")


def require_data(kind: Any, of: str = "") -> None:
    """Check what a data set states: the classes of its settings, and figures of utility.

    Args:
        kind: the ``DataKind``.
        of: put before the message.

    Raises:
        AssertionError: names what is missing or unknown.
    """
    require(isinstance(kind, DataKind), f"{of}is not a DataKind")
    for name, key in (("settings", "name"), ("algorithm", "rounds")):
        settings = getattr(kind, name)
        plain = isinstance(settings, type) and issubclass(settings, Settings)
        require(plain, f"{of}has {name} that are not a class of Settings")
        known = {each.name for each in fields(settings)}
        require(key in known, f"{of}has {name} without a field {key!r}")
    if not of:
        (own,) = (each.default for each in fields(kind.settings) if each.name == "name")
        named = isinstance(own, str) and re.fullmatch(r"[\w.-]+", own)
        require(bool(named), "has settings whose 'name' has no default that names it")
    for figure in (*kind.metrics, *kind.implicit):
        require(figure in FIGURES, f"{of}measures {figure!r}, which is not a figure of utility")


class SystemContract:
    """Tests of a system; inherit the class and set ``system``.

    Raises:
        AssertionError: a test names the part of the contract that is broken.
    """

    system: ClassVar[System] = unsaid()

    def test_it_says_what_it_is(self) -> None:
        """The system states its data sets, attacks and claims."""
        require_system(self.system)

    def test_a_report_says_what_stays_and_what_leaves(self) -> None:
        """A statement exists for the default settings."""
        algorithm = self.system.kinds[self.system.default_data].algorithm
        told = self.system.statement(algorithm())
        require(isinstance(told, Statement), "returns something other than a Statement")
        for text in ("name", "stays", "leaves"):
            require(bool(getattr(told, text)), f"does not state its {text}")
