"""Audit configurations: TOML in, validated settings out, errors that name key, value and choices.

A configuration says what is trained (data, algorithm), how it is protected, who looks, and what
must hold:

    title, seed                          text and the seed of every random stream
    [data]                               data set, split and fold
    [algorithm], [ring], [cohort]        what is trained
    [[protection]]                       layers, outermost first
    [recording]                          which payloads are kept
    [[adversaries]], attacks             who attacks how
    [[gates]]                            what must hold
    [run]                                checkpoints and the losslessness check

Shape (unknown keys, types) is checked by pydantic in strict mode; meaning (ranges, combinations) by
the settings classes of the packages themselves.
"""

import dataclasses
import datetime
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import ConfigDict, ValidationError, create_model

from attacks import SUITE, attack_named
from audits.gates import GateConfig
from secure_fedrec.algorithms import PMFConfig
from secure_fedrec.data import DATASETS, SyntheticConfig
from secure_fedrec.engines import CohortConfig
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import LAYERS, require_compatible
from secure_fedrec.wire import Adversary, RecordingPolicy

__all__ = ["AuditConfig", "DataConfig", "RunConfig", "load_config", "parse_config"]

T = TypeVar("T")

SPLITS = ("k-fold", "leave-one-out")
ALGORITHMS = ("pmf",)


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    """What is trained on.

    Args:
        name: data set.
        split: "k-fold" (FedRec++'s five random parts) or "leave-one-out".
        folds: parts of the k-fold split.
        fold: the fold that is recorded and attacked, from 0.
        utility_folds: how many folds, from the audited one on, the utility figures average over.
        clients, items, rank, mean_ratings, popularity_exponent, activity_sigma, noise: shape of
            the synthetic set; see ``SyntheticConfig``.

    Raises:
        ConfigError: a field is out of range, or shapes a set that is not synthetic.
    """

    name: str = "synthetic"
    split: str = "k-fold"
    folds: int = 5
    fold: int = 0
    utility_folds: int = 1
    clients: int | None = None
    items: int | None = None
    rank: int | None = None
    mean_ratings: float | None = None
    popularity_exponent: float | None = None
    activity_sigma: float | None = None
    noise: float | None = None

    def __post_init__(self) -> None:
        if self.name not in DATASETS:
            raise ConfigError("data.name", self.name, "unknown data set", DATASETS)
        if self.split not in SPLITS:
            raise ConfigError("data.split", self.split, "unknown split", SPLITS)
        if self.folds < 2:
            raise ConfigError("data.folds", self.folds, "must be at least 2")
        if not 0 <= self.fold < self.folds:
            raise ConfigError("data.fold", self.fold, f"must be between 0 and {self.folds - 1}")
        most = self.folds if self.split == "k-fold" else 1
        if not 1 <= self.utility_folds <= most:
            raise ConfigError(
                "data.utility_folds", self.utility_folds, f"must be between 1 and {most}"
            )
        if self.name != "synthetic":
            for key, value in self._shape().items():
                raise ConfigError(f"data.{key}", value, "shapes the synthetic data set only")

    def synthetic(self, seed: int) -> SyntheticConfig | None:
        """Shape of the synthetic set; None for a real one."""
        if self.name != "synthetic":
            return None
        return SyntheticConfig(seed=seed, **self._shape())

    def _shape(self) -> dict[str, Any]:
        names = {f.name for f in dataclasses.fields(SyntheticConfig)} - {"seed"}
        return {name: value for name in names if (value := getattr(self, name)) is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """How the run is carried out; changes no result.

    Args:
        checkpoint_every: rounds between checkpoints.
        check_lossless: train the plain twin as well and compare every round's table.
    """

    checkpoint_every: int = 5
    check_lossless: bool = True

    def __post_init__(self) -> None:
        if self.checkpoint_every < 1:
            raise ConfigError("run.checkpoint_every", self.checkpoint_every, "must be at least 1")


@dataclass(frozen=True, slots=True, kw_only=True)
class _AdversaryTable:
    name: str
    corrupt: tuple[str, ...] = ()
    taps: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditConfig:
    """A whole configuration; see the module docstring.

    Args:
        title: heading of the report.
        seed: of every random stream.
        data, algorithm, ring, cohort, recording, run: settings of the parts.
        protection: layer name -> settings, in order.
        adversaries: who looks.
        attacks: names of the attacks that are tried for every adversary.
        gates: what must hold.
    """

    title: str = "Federated recommender audit"
    seed: int = 1
    data: DataConfig = field(default_factory=DataConfig)
    algorithm: PMFConfig = field(default_factory=PMFConfig)
    ring: FixedPoint = field(default_factory=FixedPoint)
    cohort: CohortConfig = field(default_factory=CohortConfig)
    recording: RecordingPolicy = field(default_factory=RecordingPolicy)
    run: RunConfig = field(default_factory=RunConfig)
    protection: Mapping[str, Any] = field(default_factory=dict)
    adversaries: tuple[Adversary, ...] = ()
    attacks: tuple[str, ...] = tuple(SUITE)
    gates: tuple[GateConfig, ...] = ()

    def __post_init__(self) -> None:
        if not self.title.strip():
            raise ConfigError("title", self.title, "must not be empty")
        if not 0 <= self.seed < 2**63:
            raise ConfigError("seed", self.seed, "must be between 0 and 2^63 - 1")
        require_compatible(tuple(self.protection))
        names = [adversary.name for adversary in self.adversaries]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError("adversaries.name", name, "is used twice")
        for name in self.attacks:
            attack_named(name)
            if self.attacks.count(name) > 1:
                raise ConfigError("attacks", name, "is named twice")
        for gate in self.gates:
            if gate.adversary is not None and gate.adversary not in names:
                raise ConfigError("gates.adversary", gate.adversary, "unknown adversary", names)
            if gate.attack is not None and gate.attack not in self.attacks:
                raise ConfigError("gates.attack", gate.attack, "is not run", self.attacks)

    def as_json(self) -> dict[str, Any]:
        """The resolved configuration as JSON values; ``parse_config`` reads it back."""
        plain: dict[str, Any] = {"title": self.title, "seed": self.seed}
        for name in _SECTIONS:
            plain[name] = _without_none(dataclasses.asdict(getattr(self, name)))
        plain["algorithm"] = {"name": "pmf", **plain["algorithm"]}
        plain["protection"] = [
            {"layer": layer, **_without_none(dataclasses.asdict(settings))}
            for layer, settings in self.protection.items()
        ]
        plain["adversaries"] = [
            {"name": a.name, "corrupt": sorted(a.corrupt), "taps": sorted(a.taps)}
            for a in self.adversaries
        ]
        plain["attacks"] = list(self.attacks)
        plain["gates"] = [_without_none(dataclasses.asdict(gate)) for gate in self.gates]
        normal: dict[str, Any] = json.loads(json.dumps(plain))
        return normal

    def digest(self) -> str:
        """SHA-256 of the resolved configuration."""
        return sha256(json.dumps(self.as_json(), sort_keys=True).encode()).hexdigest()

    def training_digest(self) -> str:
        """SHA-256 of what decides the bits of a training run; attacks and gates do not."""
        kept = {
            key: value
            for key, value in self.as_json().items()
            if key not in ("title", "adversaries", "attacks", "gates", "run")
        }
        return sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


_SECTIONS: Mapping[str, type] = {
    "data": DataConfig,
    "algorithm": PMFConfig,
    "ring": FixedPoint,
    "cohort": CohortConfig,
    "recording": RecordingPolicy,
    "run": RunConfig,
}
_LISTS = ("protection", "adversaries", "gates")


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> AuditConfig:
    """Read a TOML file, or the ``config.json`` of a run.

    Args:
        path: the file.
        overrides: dotted key -> value, e.g. ``{"protection.rho": 2}``; for a list of tables the
            key of an entry applies to every table that has it.

    Raises:
        DataError: the file cannot be read or is not TOML.
        ConfigError: a setting is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
        raw = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except OSError as missing:
        raise DataError(path, f"cannot be read ({missing.strerror})") from missing
    except (tomllib.TOMLDecodeError, json.JSONDecodeError, UnicodeDecodeError) as damage:
        kind = "JSON" if path.suffix == ".json" else "TOML"
        raise DataError(path, f"is not valid {kind}: {damage}") from damage
    if not isinstance(raw, dict):
        raise DataError(path, "holds no table of settings")
    for key, value in (overrides or {}).items():
        _override(raw, key, value)
    return parse_config(raw)


def parse_config(raw: Mapping[str, Any]) -> AuditConfig:
    """Validate a configuration given as nested plain values.

    Raises:
        ConfigError: a setting is wrong; names key, value and, where they can be listed, choices.
    """
    known = ("title", "seed", *_SECTIONS, "attacks", *_LISTS)
    for key in raw:
        if key not in known:
            raise ConfigError(key, raw[key], "unknown key", known)
    for key in _LISTS:
        _require_tables(key, raw.get(key, []))
    settings: dict[str, Any] = {}
    for name, kind in _SECTIONS.items():
        if name in raw:
            table = _require_table(name, raw[name])
            if name == "algorithm":
                table = _without_name(table)
            settings[name] = _build(kind, name, table)
    top = {key: raw[key] for key in ("title", "seed") if key in raw}
    _check_types(_Top, "", top)
    settings |= top
    if "attacks" in raw:
        settings["attacks"] = _attack_names(raw["attacks"])
    settings["protection"] = _layers(raw.get("protection", []))
    settings["adversaries"] = tuple(_adversary(table) for table in raw.get("adversaries", []))
    settings["gates"] = tuple(_build(GateConfig, "gates", table) for table in raw.get("gates", []))
    return AuditConfig(**settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Top:
    title: str = ""
    seed: int = 0


def _layers(tables: list[dict[str, Any]]) -> dict[str, Any]:
    layers: dict[str, Any] = {}
    for table in tables:
        name = table.get("layer")
        if not isinstance(name, str) or name not in LAYERS:
            raise ConfigError("protection.layer", name, "unknown layer", LAYERS)
        if name in layers:
            raise ConfigError("protection.layer", name, "is stacked twice")
        rest = {key: value for key, value in table.items() if key != "layer"}
        layers[name] = _build(LAYERS[name], "protection", rest)
    return layers


def _adversary(table: Mapping[str, Any]) -> Adversary:
    read = _build(_AdversaryTable, "adversaries", table)
    return Adversary(name=read.name, corrupt=frozenset(read.corrupt), taps=frozenset(read.taps))


def _attack_names(names: object) -> tuple[str, ...]:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError("attacks", names, "must be a list of names", SUITE)
    return tuple(SUITE) if names == ["all"] else tuple(names)


def _without_name(table: Mapping[str, Any]) -> dict[str, Any]:
    name = table.get("name", "pmf")
    if name not in ALGORITHMS:
        raise ConfigError("algorithm.name", name, "unknown algorithm", ALGORITHMS)
    return {key: value for key, value in table.items() if key != "name"}


def _build(kind: type[T], section: str, table: Mapping[str, Any]) -> T:
    """An instance of a settings class from a table, types and keys checked first."""
    return kind(**_check_types(kind, section, table))


def _check_types(kind: type, section: str, table: Mapping[str, Any]) -> dict[str, Any]:
    fields = {f.name: (f.type, ... if _is_required(f) else None) for f in dataclasses.fields(kind)}
    shape = create_model(
        kind.__name__, __config__=ConfigDict(extra="forbid", strict=True), **fields
    )  # type: ignore[call-overload]
    prefix = f"{section}." if section else ""
    for name, value in table.items():
        # TOML has nan and inf, JSON does not: they go to the settings class, which names them.
        if isinstance(value, float) and not np.isfinite(value):
            raise ConfigError(f"{prefix}{name}", value, "must be finite")
        if _has_date(value):
            raise ConfigError(f"{prefix}{name}", str(value), "must not be a date or a time")
    try:
        checked = shape.model_validate_json(json.dumps(dict(table), default=str))
    except ValidationError as refused:
        first = refused.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if not isinstance(part, int))
        if first["type"] == "extra_forbidden":
            raise ConfigError(f"{prefix}{where}", first["input"], "unknown key", fields) from None
        if first["type"] == "missing":
            raise ConfigError(f"{prefix}{where}", None, "is required") from None
        problem = first["msg"].replace("Input should be", "should be")
        raise ConfigError(f"{prefix}{where}", first["input"], problem) from None
    return {name: getattr(checked, name) for name in table}


def _has_date(value: object) -> bool:
    """Whether a TOML value is, or holds, a date or a time: no setting is one."""
    if isinstance(value, dict):
        return any(map(_has_date, value.values()))
    if isinstance(value, list):
        return any(map(_has_date, value))
    return isinstance(value, datetime.date | datetime.time)


def _is_required(entry: "dataclasses.Field[Any]") -> bool:
    missing = dataclasses.MISSING
    return entry.default is missing and entry.default_factory is missing


def _require_table(key: str, value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(key, value, f"must be a table, written [{key}]")
    return value


def _require_tables(key: str, value: object) -> None:
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise ConfigError(key, value, f"must be a list of tables, written [[{key}]]")


def _override(raw: dict[str, Any], key: str, value: Any) -> None:
    *path, last = key.split(".")
    if not path:
        raw[last] = value
        return
    target = raw.setdefault(path[0], {})
    if isinstance(target, list):
        having = [table for table in target if last in table]
        if len(path) != 1 or not having:
            raise ConfigError(key, value, f"no table of [[{path[0]}]] has a key {last!r}")
        for table in having:
            table[last] = value
        return
    if len(path) != 1 or not isinstance(target, dict):
        raise ConfigError(key, value, "no such setting")
    target[last] = value


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if value is not None}
