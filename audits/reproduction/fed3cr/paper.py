"""Fed3CR's numbers, as they were printed, and under which settings its tables are repeated."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final, NamedTuple

from audits.reproduction.fed3cr.search import Axis, Space
from audits.reproduction.fed3cr.settings import Setting, ordered
from audits.reproduction.files import read_paper
from audits.reproduction.seeds import require_reproduced
from secure_fedrec.algorithms.item_tables.fed3cr_generator import ADAPTIVE
from secure_fedrec.algorithms.item_tables.fed3cr_plugin import PLUG_IN
from secure_fedrec.errors import ConfigError
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
        """For the name of its file."""
        told = [f"{key.rpartition('.')[2]}{value}" for key, value in self.setting]
        end = (f"rounds{self.rounds}", f"seed{self.seed}")
        stem = "-".join([*self.place, self.method, *told, *end])
        if len(stem) <= _LONGEST:
            return stem
        digest = sha256(repr(self.setting).encode()).hexdigest()[:16]
        return "-".join([*self.place, self.method, digest, *end])


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper.

    Args:
        title: short citation.
        seeds: of the repetitions.
        measures: in columns.
        overlap_methods: whose views of the items are compared.
        compared: methods, one less the other.
        data: what the paper calls a set, by name.
        names: what it calls a method, by name.
        methods: rows of table 2 by data set: numbers by method, none where it has none.
        parts: which parts a row of table 3 has.
        ablation: numbers of table 3 by data set and row.
        transfers: which transfer a row of table 4 has.
        transferred: numbers of table 4 by data set and row.
        plugged: methods of figure 8, and the data sets it is drawn of.
        varied: values by key of figure 9, and its data sets.
        protocols: rounds, repetitions, settings by protocol.
        sensitivity: ideas, of which constants they are varied in, and what they are compared with.
        quick: size of what is generated; empty for the paper's sets.
    """

    title: str
    seeds: tuple[int, ...]
    measures: tuple[str, ...]
    overlap_methods: tuple[str, ...]
    compared: tuple[tuple[str, str], ...]
    data: Mapping[str, str]
    names: Mapping[str, str]
    methods: Mapping[str, Mapping[str, Sequence[float]]]
    parts: Mapping[str, Sequence[bool]]
    ablation: Mapping[str, Mapping[str, Sequence[float]]]
    transfers: Mapping[str, str]
    transferred: Mapping[str, Mapping[str, Sequence[float]]]
    plugged: Mapping[str, Sequence[str]]
    varied: Mapping[str, Any]
    protocols: Mapping[str, Mapping[str, Any]]
    sensitivity: Sequence[Mapping[str, Any]]
    quick: Mapping[str, Any]

    def places(self, data: Sequence[str] | None, protocols: Sequence[str] | None) -> list[Place]:
        """Data sets under protocols; None for all.

        Raises:
            ConfigError: there is no such data set or protocol.
        """
        require_reproduced("--data", data, self.data)
        require_reproduced("--protocol", protocols, PROTOCOLS)
        return [
            Place(name, protocol)
            for name in self.data
            if not data or name in data
            for protocol in PROTOCOLS
            if not protocols or protocol in protocols
        ]

    def rounds(self, place: Place, part: str = "") -> int:
        """Of training, of a part of the paper where that has its own."""
        if self.quick:
            return int(self.quick["rounds"])
        own = self.protocols[place.protocol]
        usual = own.get("rounds_of", {}).get(place.data, own["rounds"])
        return int(own["rounds_apart"].get(part, usual))

    def repetitions(
        self, place: Place, part: str = "", *, asked: int | None = None
    ) -> tuple[int, ...]:
        """Seeds of a place.

        Raises:
            ConfigError: more are asked for than there are.
        """
        own = self.protocols[place.protocol]
        usual = own.get("repetitions_of", {}).get(place.data, own["repetitions"])
        count = own["repetitions_apart"].get(part, usual) if asked is None else asked
        count = 1 if self.quick and asked is None else count
        if not 1 <= count <= len(self.seeds):
            raise ConfigError("--seeds", count, f"must be 1 to {len(self.seeds)}")
        return self.seeds[:count]

    def pinned(self, place: Place, method: str) -> Setting:
        """Of a method under ``published``."""
        own = self.protocols[place.protocol]
        found = own.get("settings_of", {}).get(place.data, {}).get(method)
        return self._sized(found or own.get("settings", {}).get(method, {}))

    def tuned(self, place: Place) -> bool:
        """Whether methods are tuned there."""
        return place.protocol == "clean" and place.data == self.tuned_on

    @property
    def tuned_on(self) -> str:
        """The data set that methods are tuned on."""
        return str(self._clean["tuned_on"])

    def space(self, method: str) -> Space:
        """What a method is tuned over; of a plug-in, what is below and what it adds."""
        axes = self._clean["axes"]
        known = dict(axes.get(method.removeprefix(PLUG_IN), {}))
        if method.startswith(PLUG_IN):
            known |= {**axes["plug-in"], **axes.get(method, {})}
        fixed = self._clean["fixed"].get(method, {})
        ladders = tuple(
            Axis(keys=tuple(keys.split("+")), **_frozen(own))
            for keys, own in known.items()
            if keys not in fixed
        )
        return Space(ladders, dict(self._sized(fixed)), self._clean["gain"], self.finalists)

    @property
    def budget(self) -> int:
        """How many studies a search may try, whatever the method."""
        return int(self.quick.get("budget", self._clean["budget"]))

    def carried(self, method: str) -> list[Setting]:
        """Settings for a set that is not tuned on: the best of an earlier grid, in order."""
        return [self._sized(each) for each in self._clean["carried"].get(method, ())]

    def candidates(self, data: str) -> int:
        """How many of them are tried; more where all of these diverge."""
        return int(self._clean.get("candidates_of", {}).get(data, self._clean["candidates"]))

    @property
    def finalists(self) -> int:
        """How many settings, the best of the first seed, are tried on the other seeds."""
        return int(self._clean["finalists"])

    def longer(self, rounds: int) -> int | None:
        """Rounds of a finalist whose chosen round is among the last; None beyond the most."""
        doubled = 2 * rounds
        return doubled if doubled <= self.quick.get("rounds", self._clean["most_rounds"]) else None

    @property
    def _clean(self) -> Mapping[str, Any]:
        return self.protocols["clean"]

    def with_parts(self, setting: Setting, row: str) -> Setting:
        """Fed3CR's settings with the parts of a row of table 3 alone."""
        adaptive, *losses = self.parts[row]
        lost = [name for name, has in zip(_PARTS[1:], losses, strict=True) if not has]
        off = {} if adaptive else {"enhancement.adaptive": False}
        return ordered({**dict(setting), **_without(lost), **off})

    def with_transfer(self, setting: Setting, row: str) -> Setting:
        """Fed3CR's settings with the transfer of a row of table 4, and without the losses."""
        transfer = self.transfers[row]
        own = {} if transfer == ADAPTIVE else {"enhancement.transfer": transfer}
        return ordered({**dict(setting), **_without(_PARTS[1:]), **own})

    def config(self, needed: Needed) -> StudyConfig:
        """Settings of a study."""
        return StudyConfig(
            method=needed.method,
            data="generated" if self.quick else needed.place.data,
            protocol=needed.place.protocol,
            seed=needed.seed,
            rounds=needed.rounds,
            settings=dict(needed.setting),
        )

    def studied(self, place: Place, methods: Sequence[str] | None) -> list[str]:
        """Methods of table 2 that there are here, in its order.

        Raises:
            ConfigError: one that is asked for is none of them.
        """
        rows = [name for name in self.methods[place.data] if name in METHODS]
        rows += [f"{PLUG_IN}{name}" for name in self.plugged["methods"]]
        require_reproduced("--method", methods, rows)
        return [name for name in rows if not methods or name in methods]

    def ideas(self, place: Place) -> list[Mapping[str, Any]]:
        """What is varied there, beside what."""
        return [
            each
            for each in self.sensitivity
            if place.data in each["data"] and place.protocol in each["protocols"]
        ]

    def of_ideas(self, place: Place) -> list[str]:
        """Methods whose setting that takes."""
        sides = [each[side] for each in self.ideas(place) for side in ("of", "beside")]
        return [side["method"] for side in sides]

    def oracles(self, place: Place, seed: int) -> Needed:
        """The study of rules without a model."""
        return Needed(place, ORACLES, (), seed, self.rounds(place))

    def _sized(self, settings: Mapping[str, Any]) -> Setting:
        """With the rank of a quick run."""
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
    ablation, figure9 = raw["table3"], raw["figure9"]
    paper = Paper(
        title=raw["title"],
        seeds=tuple(raw["seeds"]),
        measures=tuple(raw["measures"]),
        overlap_methods=tuple(raw["overlap_methods"]),
        compared=tuple((one, other) for one, other in raw["compared"]),
        data={name: each["paper_name"] for name, each in raw["data"].items()},
        names=raw["names"],
        methods=raw["table2"],
        parts=ablation["parts"],
        ablation=ablation["paper"],
        transfers=raw["table4"]["transfers"],
        transferred=raw["table4"]["paper"],
        plugged=raw["figure8"],
        varied=figure9,
        protocols={name: raw[name] for name in PROTOCOLS},
        sensitivity=raw["sensitivity"],
        quick=raw["quick"] if quick else {},
    )
    if not quick:
        return paper
    first = next(iter(paper.data))
    varied = {key: values[:2] for key, values in figure9["varied"].items()}
    return replace(
        paper, data={first: paper.data[first]}, varied={"data": [first], "varied": varied}
    )
