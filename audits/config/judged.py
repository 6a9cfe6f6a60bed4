"""How to judge a recording of any origin: adversaries, attacks, and what must hold."""

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from attacks import SUITE, attack_named
from audits.config.lines import locate
from audits.config.tables import as_table, build, require_tables
from audits.gates.gate import GateConfig
from audits.gates.waivers import BESIDE_ATTACKS, WaiverConfig, with_days
from audits.plugin_names import ALL
from audits.plugins import PLUGINS, Plugin, named, written_names
from secure_fedrec.core.files import read_json
from secure_fedrec.data.refusals import readable, refused
from secure_fedrec.errors import ConfigError, DataError, entry
from secure_fedrec.settings import Filled, Settings, Within
from secure_fedrec.wire import Adversary

ENTRIES: Mapping[str, type] = {
    "adversaries": Adversary,
    "gates": GateConfig,
    "waivers": WaiverConfig,
}
"""Lists of tables of one kind."""


class JudgedConfig(Settings):
    """How to judge a recording.

    Args:
        title: heading of the report.
        seed: seed of all draws of attacks and intervals.
        adversaries: the adversaries.
        attacks: names of the attacks that are tried for every adversary; ["all"] is all of them.
        gates: what must hold.
        waivers: what is excused for a while.
        plugins: the plug-ins that the names above stand for.
    """

    title: Annotated[str, Filled()] = "Federated recommender audit"
    seed: Annotated[int, Within(0, 2**63 - 1)] = 1
    adversaries: tuple[Adversary, ...] = ()
    attacks: tuple[str, ...] = tuple(SUITE.shipped)
    gates: tuple[GateConfig, ...] = ()
    waivers: tuple[WaiverConfig, ...] = ()
    plugins: tuple[Plugin, ...] = ()

    def require_named(self) -> None:
        """Check that names are unique, and that gates and waivers use existing names.

        Raises:
            ConfigError: the settings do not agree.
        """
        names = [adversary.name for adversary in self.adversaries]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError("adversaries.name", name, "is used twice")
        for name in self.attacks:
            attack_named(name)
            if self.attacks.count(name) > 1:
                raise ConfigError("attacks", name, "is named twice")
        named: tuple[tuple[GateConfig | WaiverConfig, ...], ...] = (self.gates, self.waivers)
        for number, each in (pair for entries in named for pair in enumerate(entries)):
            with entry(number):
                if each.adversary is not None and each.adversary not in names:
                    raise each.refusal("adversary", "unknown adversary", names)
                known = self.attacks
                if isinstance(each, WaiverConfig):  # including layers that are switched off
                    known = (*SUITE, *BESIDE_ATTACKS)
                if each.attack is not None and each.attack not in known:
                    raise each.refusal("attack", "is not run", known)

    @property
    def known_attacks(self) -> tuple[str, ...]:
        """Names of all attacks: the shipped ones and the configuration's own."""
        return (*SUITE.shipped, *written_names(self.plugins, "attack"))

    def written(self, kind: str, name: str) -> str:
        """The name of something in a configuration; a plug-in is written package.module:OBJECT."""
        return written_names(self.plugins, kind).get(name, name)

    def judged_json(self) -> dict[str, Any]:
        """Its lists as JSON values."""
        plain: dict[str, Any] = {
            "adversaries": [as_table(adversary) for adversary in self.adversaries],
            "attacks": [self.written("attack", name) for name in self.attacks],
            "gates": [as_table(gate) for gate in self.gates],
        }
        if self.waivers:
            plain["waivers"] = [as_table(waiver) for waiver in self.waivers]
        if self.plugins:
            of_attacks = written_names(self.plugins, "attack").values()
            figures = dict.fromkeys(written_names(self.plugins, "figures").values())
            plain["measures"] = [each for each in figures if each not in of_attacks]
            plain[PLUGINS] = [plugin.told() for plugin in self.plugins]
        return plain

    def as_json(self) -> dict[str, Any]:
        """The resolved configuration as JSON values."""
        plain = {"title": self.title, "seed": self.seed, **self.judged_json()}
        normal: dict[str, Any] = json.loads(json.dumps(plain))
        return normal

    def digest(self) -> str:
        """SHA-256 of the resolved configuration."""
        return sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()


class RecordingConfig(JudgedConfig):
    """How to judge a recording that this package did not make: without training or protection.

    Args:
        title: heading of the report.
        seed: seed of all draws of attacks and intervals.
        adversaries: the adversaries.
        attacks: names of the attacks that are tried for every adversary; ["all"] is all of them.
        gates: what must hold, for figures of attacks only: utility, exactness and epsilon are not
            recorded.
        waivers: what is excused for a while.
        plugins: the plug-ins that the names above stand for.
    """

    title: Annotated[str, Filled()] = "Audit of a recorded federation"

    def _agree(self) -> None:
        self.require_named()
        for number, gate in enumerate(self.gates):
            with entry(number):
                if gate.metric in ("lossless", "epsilon"):
                    raise gate.refusal("metric", "is not known of a recording")
                gate.require_measured(())


def read_tables(path: Path) -> dict[str, Any]:
    """The tables of a TOML file, or of a JSON file.

    Raises:
        DataError: the file cannot be read, or is neither.
    """
    with readable(path):
        is_folder = path.is_dir()
    if is_folder:
        problem = "is a folder, not a file; secure-fedrec attack judges a recording in one"
        raise DataError(path, problem)
    is_json = path.suffix == ".json"
    problem = f"is not valid {'JSON' if is_json else 'TOML'}: {{}}"
    with readable(path), refused(path, problem, ValueError, RecursionError):
        raw = read_json(path) if is_json else tomllib.loads(path.read_text(encoding="utf-8"))
    if not isinstance(raw, dict):
        raise DataError(path, "does not hold a table of settings")
    return raw


def judged_settings(raw: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of ``JudgedConfig`` that tables hold.

    Raises:
        ConfigError: a setting is wrong.
    """
    settings: dict[str, Any] = {key: raw[key] for key in ("title", "seed") if key in raw}
    if "attacks" in raw:
        settings["attacks"] = _attack_names(raw["attacks"])
    for name, kind in ENTRIES.items():
        settings[name] = _entries(name, kind, require_tables(name, raw.get(name, [])))
    return settings


def parse_recording_config(raw: Mapping[str, Any]) -> RecordingConfig:
    """Validate settings for judging a recording, given as nested plain values.

    Args:
        raw: the values.

    Raises:
        ConfigError: a setting is wrong.
    """
    known = ("title", "seed", "attacks", "measures", *ENTRIES)
    for key in raw:
        if key not in (*known, PLUGINS):
            raise ConfigError(key, raw[key], "does not apply to a recording", known)
    raw, plugins = named(raw)
    return RecordingConfig(**judged_settings(raw), plugins=plugins)


def recording_config(
    judged_by: Mapping[str, Any] | str | os.PathLike[str] | None,
    adversaries: str | Sequence[str] | None = None,
    attacks: str | Sequence[str] | None = None,
) -> RecordingConfig:
    """Settings for judging a recording: tables or a file of them, with overrides.

    Args:
        judged_by: the tables, or the path of a TOML file; None for none.
        adversaries: parties such as "server+client:3", in place of those of the tables.
        attacks: the only attacks to run, in place of those of the tables.

    Raises:
        ConfigError: a setting is wrong, or no adversary is named.
        DataError: the file cannot be read.
    """
    path = None
    if judged_by is None or isinstance(judged_by, Mapping):
        raw = dict(judged_by or {})
    else:
        path = Path(judged_by)
        raw = read_tables(path)
    if adversaries:
        told = (adversaries,) if isinstance(adversaries, str) else tuple(adversaries)
        raw["adversaries"] = [{"name": each, "corrupt": each.split("+")} for each in told]
    if attacks:
        raw["attacks"] = [attacks] if isinstance(attacks, str) else list(attacks)
    if not raw.get("adversaries"):
        raise ConfigError("adversaries", [], "name an adversary, for example the server")
    try:
        return parse_recording_config(raw)
    except ConfigError as wrong:
        if path is not None:
            locate(wrong, path)
        raise


def _entries(section: str, kind: type, tables: list[dict[str, Any]]) -> tuple[Any, ...]:
    made: list[Any] = []
    for number, table in enumerate(tables):
        with entry(number):
            made.append(build(kind, section, with_days(table) if kind is WaiverConfig else table))
    return tuple(made)


def _attack_names(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError("attacks", names, "must be a list of names", SUITE)
    return tuple(SUITE.shipped) if names == [ALL] else tuple(names)
