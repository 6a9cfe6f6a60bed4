"""Audit configurations: TOML in, validated settings out, errors that name key, value and choices.

A configuration says what is trained (data, algorithm), how it is protected, who the adversaries
are, and what must hold:

    title, seed                          text and the seed of every random stream
    [algorithm], [data]                  what is trained, on what
    [ring], [cohort]                     how numbers are summed, who takes part
    [[protection]]                       layers over what is summed, outermost first
    [[bag_protection]]                   layers over what is collected in bags
    [recording]                          which payloads are kept
    [[adversaries]], attacks             adversaries, and attacks that are run [[gates]]
                   what must hold [[waivers]]                          what is excused for a while,
    by whom measures                             figures that are not shipped [run]
                  checkpoints, measurements and the losslessness check

``algorithm.name`` determines the rest: a system (``audits.systems``) names the data sets that it
learns from and the settings of both. ``audits.config.tables`` reads tables; what they mean (ranges,
combinations) is checked by the settings classes of the packages themselves. A system, layer,
attack, data set or figure that is not shipped is named as "package.module:OBJECT"
(``audits.plugins``).
"""

import json
from collections.abc import Mapping
from dataclasses import field, fields
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

from audits.config.judged import ENTRIES, JudgedConfig, judged_settings, read_tables
from audits.config.lines import locate
from audits.config.overrides import override
from audits.config.tables import as_table, build, require_table, require_tables
from audits.gates.gate import RATING_VALUES
from audits.plugins import PLUGINS, TRAINING, load, named
from audits.run.folder import CONFIG_DIGEST
from audits.system import DataKind, Statement, System
from audits.systems import DATA, kinds_of, system_named
from secure_fedrec.engines import CohortConfig
from secure_fedrec.errors import ConfigError, entry
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import BAG_LAYERS, LAYERS, RECORDS, Claim, claim_of
from secure_fedrec.settings import Count, Positive, Rounds, Settings, Unit
from secure_fedrec.wire import RecordingPolicy

DEFAULT_SYSTEM = "pmf"
"""The algorithm of a configuration that does not name one."""

_HERE = Path()


class RunConfig(Settings, section="run"):
    """How the run is carried out; does not change results.

    Args:
        checkpoint_every: rounds between checkpoints.
        check_lossless: train the plain twin as well, which sums the clients' own uploads without
            any layer, and compare every round's rows and public state.
        evaluate_every: rounds between two measurements of the utility; the last round is always
            measured.
        max_memory_gb: an audit or a training that would need more memory is refused before it
            begins; without it, none is refused.
        workers: processes that share the attacks, and the trainings of other folds and the plain
            twin; without it, one per core if the work would take one process half a minute.
    """

    checkpoint_every: Rounds = 5
    check_lossless: bool = True
    evaluate_every: Rounds = 1
    max_memory_gb: Annotated[Positive, Unit("GB")] | None = None
    workers: Count | None = None


def _default() -> DataKind:
    system = system_named(DEFAULT_SYSTEM)
    return system.kinds[system.default_data]


class AuditConfig(JudgedConfig):
    """A whole configuration; see the module docstring.

    Args:
        title: heading of the report.
        seed: seed of every random stream; the same configuration, data and seed give the same bits.
        adversaries: the adversaries.
        attacks: names of the attacks that are tried for every adversary; "all" is all of them.
            An audit that leaves out an attack which would read messages of its run is inconclusive,
            unless a waiver excuses this.
        gates: what must hold.
        waivers: what is excused for a while.
        plugins: the plug-ins that the names above stand for.
        system: name of the algorithm.
        data: settings of the data set, of the class that the system names for it.
        algorithm: settings of the algorithm, likewise.
        ring, cohort, recording, run: settings of the parts.
        protection: layer name -> settings, in order, over what is summed.
        bag_protection: likewise over what is collected in bags.
        folder: folder of the file from which it was read; paths in it are relative to this folder.
            Not part of what is audited.
    """

    system: str = DEFAULT_SYSTEM
    data: Any = field(default_factory=lambda: _default().settings())
    algorithm: Any = field(default_factory=lambda: _default().algorithm())
    ring: FixedPoint = field(default_factory=FixedPoint)
    cohort: CohortConfig = field(default_factory=CohortConfig)
    recording: RecordingPolicy = field(default_factory=RecordingPolicy)
    run: RunConfig = field(default_factory=RunConfig)
    protection: Mapping[str, Any] = field(default_factory=dict)
    bag_protection: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = field(default=_HERE, compare=False)

    def _agree(self) -> None:
        _ = self.claim, self.bag_claim
        self.require_named()
        for number, gate in enumerate(self.gates):
            with entry(number):
                gate.require_measured(self.metrics)
                if gate.metric in RATING_VALUES and getattr(self.data, "implicit", False):
                    problem = "does not apply to implicit feedback: all its ratings are one value"
                    raise gate.refusal("metric", problem)

    @property
    def audited(self) -> System:
        """The system of the algorithm."""
        return system_named(self.system)

    @property
    def kind(self) -> DataKind:
        """The system's description of the data set."""
        return kinds_of(self.audited)[self.data.name]

    @property
    def statement(self) -> Statement:
        """The report's statement about the algorithm."""
        return self.audited.statement(self.algorithm)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the utility figures."""
        return self.kind.measured(self.data)

    @property
    def claim(self) -> Claim:
        """The claim of the layers over the sums.

        Raises:
            ConfigError: the layers do not stack.
        """
        problem = self._unstackable()
        return claim_of(tuple(self.protection), self.audited.claims, "protection", problem)

    @property
    def bag_claim(self) -> Claim | None:
        """The claim of the layers over the bags; None if the algorithm does not use bags.

        Raises:
            ConfigError: they do not stack, or the algorithm does not use bags.
        """
        layers, audited = tuple(self.bag_protection), self.audited
        if not audited.gives_to_bags(self.algorithm):
            if layers:
                problem = f"{audited.name} with these settings collects nothing in bags"
                raise ConfigError("bag_protection", " + ".join(layers), problem)
            return None
        return claim_of(layers, audited.bag_claims, "bag_protection", self._unstackable())

    def _unstackable(self) -> str:
        """The error for layers that form none of the claimed stacks."""
        why = self.audited.reads_singles
        return f"these layers do not stack over {self.system}{f': {why}' if why else ''}"

    @property
    def claims_lossless(self) -> bool:
        """Whether every round must end in the plain twin's bits.

        This follows from the claims of the layers and of their options in use.
        """
        said = [claim for claim in (self.claim, self.bag_claim) if claim is not None]
        kept = [claim.lossless for claim in said]
        for name, settings in self.protection.items():
            kept += [option.lossless for option in RECORDS[name].options if option.used(settings)]
        return self.audited.lossless(self.algorithm) and all(kept)

    def as_json(self) -> dict[str, Any]:
        """The resolved configuration as JSON values; ``parse_config`` reads it back."""
        plain: dict[str, Any] = {"title": self.title, "seed": self.seed}
        for name in ("data", "algorithm", *SECTIONS):
            plain[name] = as_table(getattr(self, name))
        plain["algorithm"] = {"name": self.written("algorithm", self.system), **plain["algorithm"]}
        plain["data"]["name"] = self.written("data set", self.data.name)
        for name in LAYER_TABLES:
            plain[name] = [
                {"layer": self.written("layer", layer), **as_table(settings)}
                for layer, settings in getattr(self, name).items()
            ]
        normal: dict[str, Any] = json.loads(json.dumps(plain | self.judged_json()))
        return normal

    def training_digest(self) -> str:
        """SHA-256 of what determines the bits of a training run, without attacks and gates."""
        left_out = ("title", "adversaries", "attacks", "measures", "gates", "waivers", "run")
        kept = {key: value for key, value in self.as_json().items() if key not in left_out}
        if PLUGINS in kept:
            kept[PLUGINS] = [each for each in kept[PLUGINS] if each["kind"] in TRAINING]
        return sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


SECTIONS: Mapping[str, type] = {
    "ring": FixedPoint,
    "cohort": CohortConfig,
    "recording": RecordingPolicy,
    "run": RunConfig,
}
"""Settings of the tables whose keys depend on nothing else."""

LAYER_TABLES: Mapping[str, Mapping[str, type]] = {
    "protection": LAYERS,
    "bag_protection": BAG_LAYERS,
}
"""Lists of tables of layers: settings by name of a layer."""

_LISTS = (*LAYER_TABLES, *ENTRIES)


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> AuditConfig:
    """Read a TOML file, or the ``config.json`` of a run.

    Args:
        path: the file.
        overrides: dotted key -> value, e.g. ``{"protection.rho": 2}``; for a list of tables the
            key of an entry applies to every table that has it; if none has it, to the one that may
            have it.

    Raises:
        DataError: the file cannot be read or is not TOML.
        ConfigError: a setting is wrong.
    """
    raw = read_tables(path)
    for key, value in (overrides or {}).items():
        override(raw, key, value, fields_of)
    try:
        return parse_config(raw, folder=path.parent)
    except ConfigError as wrong:
        if path.suffix != ".json" and wrong.key not in (overrides or {}):
            locate(wrong, path)
        raise


def parse_config(raw: Mapping[str, Any], *, folder: Path = _HERE) -> AuditConfig:
    """Validate a configuration given as nested plain values.

    Args:
        raw: the values.
        folder: what paths in it are relative to.

    Raises:
        ConfigError: a setting is wrong; names key, value and, where they can be listed, choices.
    """
    known = ("title", "seed", "data", "algorithm", *SECTIONS, "attacks", *_LISTS, "measures")
    raw = {key: value for key, value in raw.items() if key != CONFIG_DIGEST}  # of another run
    for key in raw:
        if key not in (*known, PLUGINS):
            raise ConfigError(key, raw[key], "unknown key", known)
    raw, plugins = named(raw)
    lists = {key: require_tables(key, raw.get(key, [])) for key in LAYER_TABLES}
    settings = _trained(raw)
    for name, kind in SECTIONS.items():
        if name in raw:
            settings[name] = build(kind, name, require_table(name, raw[name]))
    for name, layers in LAYER_TABLES.items():
        settings[name] = _layers(name, lists[name], layers)
    return AuditConfig(**settings, **judged_settings(raw), plugins=plugins, folder=folder)


def _trained(raw: Mapping[str, Any]) -> dict[str, Any]:
    """System, algorithm and data; the system names the classes of the other two."""
    algorithm = dict(require_table("algorithm", raw.get("algorithm", {})))
    data = require_table("data", raw.get("data", {}))
    system = system_named(algorithm.pop("name", DEFAULT_SYSTEM))
    name, kinds = data.get("name", system.default_data), kinds_of(system)
    if not isinstance(name, str):
        raise ConfigError("data.name", name, "should be a valid string", kinds)
    if name not in kinds:
        problem = f"is not a data set that {system.name} learns from"
        raise ConfigError("data.name", name, problem, kinds)
    if name in system.kinds and name in DATA:
        problem = f"is a plug-in, and a data set of {system.name} as well"
        raise ConfigError("data.name", name, problem)
    kind = kinds[name]
    return {
        "system": system.name,
        "data": build(kind.settings, "data", {"name": name, **data}),
        "algorithm": build(kind.algorithm, "algorithm", algorithm),
    }


def _layers(
    section: str, tables: list[dict[str, Any]], known: Mapping[str, type]
) -> dict[str, Any]:
    layers: dict[str, Any] = {}
    for number, table in enumerate(tables):
        with entry(number):
            name = table.get("layer")
            if not isinstance(name, str) or name not in known:
                raise ConfigError(f"{section}.layer", name, "unknown layer", known)
            if name in layers:
                raise ConfigError(f"{section}.layer", name, "is stacked twice")
            rest = {key: value for key, value in table.items() if key != "layer"}
            layers[name] = build(known[name], section, rest)
    return layers


def fields_of(name: str, table: Mapping[str, Any]) -> set[str]:
    """The keys that a table of a list may have."""
    layer = table.get("layer")
    if name == "protection" and (loaded := load("layer", layer, key=f"{name}.layer")):
        layer = loaded[0].name
    kind = ENTRIES.get(name) or LAYER_TABLES[name].get(str(layer))
    return set() if kind is None else {each.name for each in fields(kind)}
