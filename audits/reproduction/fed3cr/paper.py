"""Fed3CR's printed numbers, the settings with which they are repeated, and the studies."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, NamedTuple

from audits.reproduction.engine import chosen, first_seeds
from audits.reproduction.fed3cr.search import Axis, Setting, Space, ordered
from audits.reproduction.papers import read_paper
from audits.reproduction.progress import Found, NamedStudies
from audits.reproduction.ratings import generated
from secure_fedrec.algorithms.item_tables.fed3cr_generator import ADAPTIVE
from secure_fedrec.algorithms.item_tables.fed3cr_plugin import PLUG_IN
from secure_fedrec.data.top_n import TopN, load_top_n
from secure_fedrec.evaluation.protocols import PROTOCOLS
from secure_fedrec.studies.fed3cr.methods import METHODS, ORACLES
from secure_fedrec.studies.fed3cr.study import StudyConfig

ABLATION: Final = "ablation"
VARIED: Final = "figure9"
_PARTS: Final = ("adaptive", "consistency", "complementarity")
_LONGEST: Final = 160  # of a file's name; file systems take 255 with suffixes


class Place(NamedTuple):
    """What is compared in one table.

    Attributes:
        data: name of the interactions.
        protocol: of the evaluation.
    """

    data: str
    protocol: str


class Needed(NamedTuple):
    """One study.

    Attributes:
        place: data and protocol.
        method: name of the method.
        setting: of it.
        seed: of the repetition.
        rounds: of training.
    """

    place: Place
    method: str
    setting: Setting
    seed: int
    rounds: int

    def __str__(self) -> str:
        return f"{self.method} on {self.place.data}, {self.place.protocol}, seed {self.seed}"

    @property
    def stem(self) -> str:
        """Words for the name of its file."""
        told = [f"{key.rpartition('.')[2]}{value}" for key, value in self.setting]
        end = (f"rounds{self.rounds}", f"seed{self.seed}")
        stem = "-".join([*self.place, self.method, *told, *end])
        if len(stem) <= _LONGEST:
            return stem
        digest = sha256(repr(self.setting).encode()).hexdigest()[:16]
        return "-".join([*self.place, self.method, digest, *end])


class Variation(NamedTuple):
    """A table of variants of Fed3CR.

    Attributes:
        name: of what tells its rows apart.
        rows: by name, what a row has.
        vary: makes the setting of a row from Fed3CR's own.
        printed: numbers by data set and row.
        base: row that the others are compared with.
        whole: row that is Fed3CR itself; empty where none is.
    """

    name: str
    rows: Mapping[str, Any]
    vary: Callable[[Setting, str], Setting]
    printed: Mapping[str, Mapping[str, Sequence[float]]]
    base: str
    whole: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """The paper's file; ``quick`` is empty for the paper's sets, and figures are in %."""

    title: str
    seeds: Sequence[int]
    measures: Sequence[str]
    overlap_methods: Sequence[str]
    compared: Sequence[tuple[str, str]]
    data: Mapping[str, Mapping[str, str]]
    names: Mapping[str, str]
    table2: Mapping[str, Mapping[str, Sequence[float]]]
    table3: Mapping[str, Mapping[str, Any]]
    table4: Mapping[str, Mapping[str, Any]]
    figure8: Mapping[str, Sequence[str]]
    figure9: Mapping[str, Any]
    published: Mapping[str, Any]
    clean: Mapping[str, Any]
    sensitivity: Sequence[Mapping[str, Any]]
    quick: Mapping[str, Any]

    @property
    def variations(self) -> Mapping[int, Variation]:
        """Tables 3 and 4."""
        ablation, transfers = self.table3["paper"], self.table4["paper"]
        return {
            3: Variation("parts", self.parts, self.with_parts, ablation, "C0", "Fed3CR"),
            4: Variation("transfer", self.transfers, self.with_transfer, transfers, "ACE"),
        }

    @property
    def parts(self) -> Mapping[str, Sequence[bool]]:
        """Names of the parts that a row of table 3 has."""
        return self.table3["parts"]

    @property
    def transfers(self) -> Mapping[str, str]:
        """Which transfer a row of table 4 has."""
        return self.table4["transfers"]

    def places(self, data: Sequence[str] | None, protocols: Sequence[str] | None) -> list[Place]:
        """Data sets under protocols; None for all.

        Raises:
            ConfigError: there is no such data set or protocol.
        """
        sets = chosen("--data", data, self.data)
        kept = chosen("--protocol", protocols, PROTOCOLS)
        return [Place(name, protocol) for name in sets for protocol in kept]

    def rounds(self, place: Place, part: str = "", method: str = "") -> int:
        """Rounds of training; a part of the paper or a method may have its own number."""
        if self.quick:
            return int(self.quick["rounds"])
        own = self._protocol(place).get("rounds_of_method", {}).get(place.data, {})
        return int(own[method]) if method in own and not part else self._of(place, "rounds", part)

    def repetitions(
        self, place: Place, part: str = "", *, asked: int | None = None
    ) -> tuple[int, ...]:
        """Seeds of a place.

        Raises:
            ConfigError: there are fewer seeds than requested.
        """
        usual = 1 if self.quick else self._of(place, "repetitions", part)
        return first_seeds(self.seeds, asked, default=usual)

    def _of(self, place: Place, name: str, part: str) -> int:
        """A setting of a protocol for a place, or for a part of the paper that has its own."""
        own = self._protocol(place)
        usual = own.get(f"{name}_of", {}).get(place.data, own[name])
        return int(own[f"{name}_apart"].get(part, usual))

    def _protocol(self, place: Place) -> Mapping[str, Any]:
        return self.clean if place.protocol == "clean" else self.published

    def pinned(self, place: Place, method: str) -> Setting:
        """Settings of a method under ``published``."""
        own = self._protocol(place)
        found = own.get("settings_of", {}).get(place.data, {}).get(method)
        return self._sized(found or own.get("settings", {}).get(method, {}))

    def tuned(self, place: Place) -> bool:
        """Whether methods are tuned there."""
        return place.protocol == "clean" and place.data == self.tuned_on

    @property
    def tuned_on(self) -> str:
        """The data set that methods are tuned on."""
        return str(self.clean["tuned_on"])

    def space(self, method: str) -> Space:
        """The search space of a method; for a plug-in that of the method below and its own."""
        axes = self.clean["axes"]
        known = dict(axes.get(method.removeprefix(PLUG_IN), {}))
        if method.startswith(PLUG_IN):
            known |= {**axes["plug-in"], **axes.get(method, {})}
        fixed = self.clean["fixed"].get(method, {})
        ladders = tuple(
            Axis(keys=tuple(keys.split("+")), **_frozen(own))
            for keys, own in known.items()
            if keys not in fixed
        )
        return Space(ladders, dict(self._sized(fixed)), self.clean["gain"], self.finalists)

    @property
    def budget(self) -> int:
        """How many studies a search may try, whatever the method."""
        return int(self.quick.get("budget", self.clean["budget"]))

    def carried(self, method: str) -> list[Setting]:
        """Settings for a set that is not tuned on: the best of an earlier grid, in order."""
        return [self._sized(each) for each in self.clean["carried"].get(method, ())]

    def candidates(self, data: str) -> int:
        """How many of them are tried; more if all of these diverge."""
        return int(self.clean.get("candidates_of", {}).get(data, self.clean["candidates"]))

    @property
    def finalists(self) -> int:
        """How many settings, the best of the first seed, are tried on the other seeds."""
        return int(self.clean["finalists"])

    def longer(self, rounds: int) -> int | None:
        """Rounds of a finalist whose chosen round is among the last; None beyond the most."""
        doubled = 2 * rounds
        return doubled if doubled <= self.quick.get("rounds", self.clean["most_rounds"]) else None

    def with_parts(self, setting: Setting, row: str) -> Setting:
        """Fed3CR's settings with only the parts of a row of table 3."""
        adaptive, *losses = self.parts[row]
        lost = [name for name, has in zip(_PARTS[1:], losses, strict=True) if not has]
        off = {} if adaptive else {"enhancement.adaptive": False}
        return ordered({**dict(setting), **_without(lost), **off})

    def with_transfer(self, setting: Setting, row: str) -> Setting:
        """Fed3CR's settings with the transfer of a row of table 4, and without the losses."""
        transfer = self.transfers[row]
        own = {} if transfer == ADAPTIVE else {"enhancement.transfer": transfer}
        return ordered({**dict(setting), **_without(_PARTS[1:]), **own})

    def studied(self, place: Place, methods: Sequence[str] | None) -> list[str]:
        """Methods of table 2 that are implemented here, in its order.

        Raises:
            ConfigError: a given method is not one of them.
        """
        rows = [name for name in self.table2[place.data] if name in METHODS]
        rows += [f"{PLUG_IN}{name}" for name in self.figure8["methods"]]
        return chosen("--method", methods, rows)

    def ideas(self, place: Place) -> list[Mapping[str, Any]]:
        """What is varied there, and what it is compared with."""
        return [
            each
            for each in self.sensitivity
            if place.data in each["data"] and place.protocol in each["protocols"]
        ]

    def of_ideas(self, place: Place) -> list[str]:
        """Methods whose setting must be known for that."""
        sides = [each[side] for each in self.ideas(place) for side in ("of", "beside")]
        return [side["method"] for side in sides]

    def oracles(self, place: Place, seed: int) -> Needed:
        """The study of rules without a model."""
        return Needed(place, ORACLES, (), seed, self.rounds(place))

    def _sized(self, settings: Mapping[str, Any]) -> Setting:
        """Settings with the rank of a quick run."""
        small = {"rank": self.quick["rank"]} if self.quick else {}
        return ordered({**settings, **small})


def _without(losses: Sequence[str]) -> dict[str, float]:
    return {f"enhancement.{name}": 0.0 for name in losses}


def _frozen(value: Any) -> Any:
    """Lists as tuples, in tables and lists as well."""
    if isinstance(value, Mapping):
        return {name: _frozen(each) for name, each in value.items()}
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def load_paper(*, quick: bool) -> Paper:
    """Read the paper's numbers.

    Args:
        quick: whether generated interactions stand in for the first data set, the only one then.
    """
    raw = read_paper("fed3cr")
    small = raw.pop("quick")
    paper = Paper(**raw, quick=small if quick else {})
    if not quick:
        return paper
    first = next(iter(paper.data))
    varied = {key: values[:2] for key, values in paper.figure9["varied"].items()}
    own = {"data": [first], "varied": varied}
    return replace(paper, data={first: paper.data[first]}, figure9=own)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudySource(NamedStudies[Needed]):
    """The library of studies: those of a folder, and those made now."""

    paper: Paper

    def path(self, needed: Needed) -> Path:
        """Of the report of a study."""
        return self.folder / f"{needed.stem}.json"

    def config(self, needed: Needed) -> StudyConfig:
        """Settings of a study."""
        return StudyConfig(
            method=needed.method,
            data="generated" if self.paper.quick else needed.place.data,
            protocol=needed.place.protocol,
            seed=needed.seed,
            rounds=needed.rounds,
            settings=dict(needed.setting),
        )

    def data(self, needed: Needed) -> TopN:
        """The interactions."""
        quick = self.paper.quick
        return TopN(generated(quick), None) if quick else _loaded(needed.place.data, self.data_dir)

    def told(self, needed: Needed, bar: Any) -> dict[str, Callable[..., object]]:
        """A progress bar of its rounds, within that of all studies."""
        count, rounds = iter(range(1, needed.rounds + 1)), needed.rounds
        return {"on_round": lambda: bar.set_postfix_str(f"round {next(count)} of {rounds}")}


def find_studies(needed: Iterable[Needed], source: StudySource) -> dict[Needed, Found]:
    """The studies that are needed, from the folder or, where it has none, run now."""
    reports = source.found(needed).items()
    return {each: Found(report, source.path(each)) for each, report in reports}


@lru_cache(maxsize=1)
def _loaded(name: str, data_dir: Path | None) -> TopN:
    return load_top_n(name, data_dir)
