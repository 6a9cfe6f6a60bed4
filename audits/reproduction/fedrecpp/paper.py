"""FedRec++'s numbers, as they were printed, and the studies they take."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from audits.reproduction.files import read_paper
from audits.reproduction.seeds import require_reproduced
from secure_fedrec.settings import Settings
from secure_fedrec.studies.fedrecpp.study import METHODS, StudyConfig

_ONE, _NOT_PRINTED = -1, "-"


class Entry(NamedTuple):
    """What all folds of a study have in common.

    Attributes:
        data: name of the ratings.
        method: name of the method.
        rho: virtual items per rated one.
        denoisers: eta.
        share: of the clients in a round.
    """

    data: str
    method: str
    rho: int
    denoisers: int = 0
    share: float = 1.0

    @property
    def stem(self) -> str:
        """For names of files."""
        parts = [self.data, self.method.replace("+", "p"), f"rho{self.rho}"]
        parts += [f"eta{self.denoisers}"] if self.denoisers else []
        return "-".join([*parts, f"share{self.share:g}"])


class Needed(NamedTuple):
    """One study.

    Attributes:
        entry: of a table or figure.
        fold: held out.
        rounds: of training; one is enough for a cost.
    """

    entry: Entry
    fold: int
    rounds: int

    def __str__(self) -> str:
        return f"{self.entry.stem}, fold {self.fold}"


class Data(Settings):
    """A data set.

    Args:
        paper_name: what the paper calls it.
        clients: how many there are.
        filling: T_predict and T_local, by rho as a word.
    """

    paper_name: str
    clients: int
    filling: Mapping[str, tuple[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper:
    """A paper.

    Args:
        title: short citation.
        folds: of the ratings.
        seed: of the partition.
        rhos: virtual items per rated one.
        shares: of the clients, of figure 2.
        rounds: of training.
        learning_rate: gamma of the first round.
        data: sets by name.
        errors: rows of table 2 by data set, method to deviation of RMSE.
        costs: rows of table 3 by data set, denoisers to vectors of any client.
        quick: size of the generated ratings; empty for the paper's.
    """

    title: str
    folds: int
    seed: int
    rhos: tuple[int, ...]
    shares: tuple[float, ...]
    rounds: int
    learning_rate: float
    data: Mapping[str, Data]
    errors: Mapping[str, Sequence[Sequence[Any]]]
    costs: Mapping[str, Sequence[Sequence[Any]]]
    quick: Mapping[str, Any]

    def only(self, names: Sequence[str] | None) -> "Paper":
        """Some of the data sets; None for all.

        Raises:
            ConfigError: there is no such set.
        """
        require_reproduced("--data", names, self.data)
        kept = {name: each for name, each in self.data.items() if not names or name in names}
        return replace(self, data=kept)

    def error_entries(self, data: str) -> list[Entry]:
        """Of the rows of table 2, in order."""
        return [_entry(data, method, rho) for method, rho, *_ in self.errors[data]]

    def cost_entries(self, data: str) -> list[Entry]:
        """Of the rows of table 3, in order."""
        counts = [denoisers_of(row[0], self.data[data].clients) for row in self.costs[data]]
        return [Entry(data, "fedrec++" if eta else "fedrec", 1, eta) for eta in counts]

    def figure_entries(self, data: str) -> list[Entry]:
        """Of the points of figure 2."""
        methods = [("fedrec", 0), *((name, rho) for rho in self.rhos for name in METHODS)]
        return [_entry(data, name, rho, share) for share in self.shares for name, rho in methods]

    def needed(
        self, entries: Iterable[Entry], folds: int, *, rounds: int | None = None
    ) -> list[Needed]:
        """Every fold of some entries, fold by fold."""
        length = self.rounds if rounds is None else rounds
        once = dict.fromkeys(entries)
        return [Needed(entry, fold, length) for fold in range(folds) for entry in once]

    def config(self, needed: Needed) -> StudyConfig:
        """Settings of a study."""
        entry = needed.entry
        filling = self.data[entry.data].filling
        predict_after, local_steps = filling[str(entry.rho)] if entry.rho else (0, 1)
        return StudyConfig(
            method=entry.method,
            data="generated" if self.quick else entry.data,
            fold=needed.fold,
            folds=self.folds,
            seed=self.seed,
            rho=float(entry.rho),
            predict_after=predict_after,
            local_steps=local_steps,
            denoisers=entry.denoisers,
            share=entry.share,
            rounds=needed.rounds,
            learning_rate=self.learning_rate,
        )


def denoisers_of(share: int, clients: int) -> int:
    """How many denoisers a row of table 3 has."""
    return {0: 0, _ONE: 1}.get(share, clients // share if share > 0 else 0)


def denoisers_named(share: int) -> str:
    """The same as the paper writes it."""
    return {0: "0", _ONE: "1"}.get(share, f"n/{share}")


def printed(value: Any) -> float | None:
    """A cell of a table; None where the paper has none."""
    return None if value == _NOT_PRINTED else float(value)


def load_paper(*, quick: bool) -> Paper:
    """Read the paper's numbers.

    Args:
        quick: whether small generated ratings stand in for the smallest set.
    """
    raw = read_paper("fedrecpp")
    size = raw.pop("quick") if quick else {}
    data = {name: Data(**each) for name, each in raw.pop("data").items()}
    errors, costs = raw.pop("table2"), raw.pop("table3")
    raw = {**raw, "rhos": tuple(raw["rhos"]), "shares": tuple(raw["shares"])}
    raw.pop("quick", None)
    paper = Paper(**raw, data=data, errors=errors, costs=costs, quick=size)
    if not quick:
        return paper
    first = next(iter(data))
    small = replace(data[first], clients=size["clients"])
    own = {name: size[name] for name in ("folds", "rounds", "learning_rate")}
    return replace(paper, data={first: small}, **own)


def _entry(data: str, method: str, rho: int, share: float = 1.0) -> Entry:
    return Entry(data, method, rho, 1 if method == "fedrec++" else 0, share)
