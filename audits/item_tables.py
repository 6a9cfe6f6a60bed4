"""Methods of the item-table family in audits: data, task, and systems made from methods.

Clients train on interactions and on sampled items; two items of each are held out, as a protocol of
``evaluation.protocols`` says, and ranked by the client's own model as it was trained, before any
mean is taken.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, partial
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from attacks.scoring.held_out import held_out_grid
from attacks.suite import FAMILIES
from audits.rating_data import (
    FILE,
    FileData,
    Sample,
    TableData,
    attribute_columns,
    load_source,
    rated_sets,
    table_facts,
)
from audits.system import (
    DataFacts,
    DataKind,
    Fresh,
    Nouns,
    Secrets,
    Statement,
    System,
    Undivided,
    Wanted,
    digest_of,
)
from secure_fedrec.algorithms.base import Algorithm
from secure_fedrec.algorithms.item_tables import Enhanced
from secure_fedrec.algorithms.item_tables.method import ItemTableMethod
from secure_fedrec.algorithms.item_tables.ranked import ranked
from secure_fedrec.algorithms.item_tables.single_tables import SingleTables, item_tables
from secure_fedrec.algorithms.item_tables.trainer import NEGATIVES
from secure_fedrec.data import DATASETS, RatingTable
from secure_fedrec.data.negatives import Ragged
from secure_fedrec.engines import Problem
from secure_fedrec.engines.federated_problem import Evaluate
from secure_fedrec.engines.local_engine import CohortConfig
from secure_fedrec.engines.rating_problems import vault_of
from secure_fedrec.errors import MISSING, ConfigError
from secure_fedrec.evaluation import RankingFigure, Rule, figures_of
from secure_fedrec.evaluation.leaks import measured_leak
from secure_fedrec.evaluation.protocols import PROTOCOLS, RankingCase, ranking_case
from secure_fedrec.protection import Claim, Subject, claims_about
from secure_fedrec.settings import OneOf
from secure_fedrec.streams import Streams
from secure_fedrec.studies.engine import bag_shapes
from secure_fedrec.vault import Vault

Learner: TypeAlias = Callable[[Any, int], ItemTableMethod]
"""Makes a method of its settings and the number of items."""

GENERATOR_TELLS = (
    "the change of the generator's first layer divided by that of its biases is the layer's input, "
    "half of which is the mean of the personal item table over the items that the client "
    "interacted with"
)
"""What uploads of Fed3CR reveal, alone or as a plug-in."""

METRICS = figures_of(RankingFigure)
"""Figures of the test items."""
_LOCAL = ("random", "never drawn")


class RankingData(Sample, TableData):
    """Ratings as interactions, two of every client held out; see ``TableData`` and ``Sample``.

    Args:
        protocol: what training negatives are drawn from: under "clean" from everything that a
            client does not train on, under "published" without held-out items, as in public codes.

    Raises:
        ConfigError: a field is out of range, or shapes a table that is not synthetic.
    """

    name: Annotated[str, OneOf(DATASETS, "unknown data set")] = "ml-100k"
    protocol: Annotated[str, OneOf(PROTOCOLS, "unknown protocol")] = PROTOCOLS[0]
    implicit = True  # only whether an item was rated counts


class RankingFileData(Sample, FileData):
    """The same of one's own files; see ``RatingsFile`` and ``Sample``.

    Args:
        protocol: what training negatives are drawn from: under "clean" from everything that a
            client does not train on, under "published" without held-out items, as in public codes.

    Raises:
        ConfigError: a field is out of range, or two do not agree.
    """

    protocol: Annotated[str, OneOf(PROTOCOLS, "unknown protocol")] = PROTOCOLS[0]
    implicit = True


@dataclass(frozen=True, kw_only=True, eq=False)
class RankingTask(ABC):
    """An algorithm on one case of an evaluation by ranking.

    Args:
        settings: settings of the algorithm.
        table: the whole data set.
        case: what is trained on and held out.
        seed: seed of the run.
        cohort: who takes part in a round.
    """

    settings: Any
    table: RatingTable
    case: RankingCase
    seed: int
    cohort: CohortConfig

    @property
    @abstractmethod
    def negatives(self) -> int:
        """Items that a client draws per training item and round."""

    @abstractmethod
    def fresh(self) -> Fresh:
        """Algorithm and problem of one more run, training items in vaults."""

    @cached_property
    def facts(self) -> DataFacts:
        """The table in figures, what rules without a model reach, and a leak of the protocol."""
        streams, clients = Streams.from_seed(self.seed), self.case.n_clients
        leak = measured_leak(
            self.case,
            rounds=self.settings.rounds,
            stream=streams.stream(NEGATIVES),
            seed=self.seed,
            per_positive=self.negatives,
            present=lambda round_: self.cohort.draw(round_, clients, streams),
        )
        means = {
            name: {key: found.value for key, found in figures.items()}
            for name, figures in leak.means.items()
        }
        return table_facts(
            self.table,
            train=self.case.train,
            test=int(np.count_nonzero(self.case.test >= 0)),
            nouns=Nouns(examples="interactions"),
            baselines={
                name: Rule(figures=figures, local=name in _LOCAL) for name, figures in means.items()
            },
            warning=leak.warning,
        )

    def identity(self) -> str:
        """Digest of the items that are trained on, held out, kept out and ranked among."""
        case = self.case
        names = ("validation", "test", "validation_negatives", "test_negatives")
        columns = {name: getattr(case, name) for name in names}
        kept: dict[str, npt.NDArray[Any]]
        kept = {"kept.indptr": case.kept_out.indptr, "kept.items": case.kept_out.items}
        trained: dict[str, npt.NDArray[Any]]
        trained = {"indptr": case.rated.indptr, "items": case.rated.items}
        return digest_of({**columns, **kept, **trained})

    def problem(self, vault: Vault, evaluate: Evaluate | None = None) -> Problem:
        """What the algorithm learns from.

        Args:
            vault: with the training items.
            evaluate: measures a state, where clients do not measure what they trained.
        """
        case = self.case
        drawn = {"negatives": self.negatives} if self.negatives else {}
        return Problem(
            vault=vault,
            n_rows=case.n_items,
            evaluate=evaluate,
            knowledge={
                "n_items": case.n_items,
                "rating_levels": case.train.scale.levels.tolist(),
                **drawn,
            },
            popularity=case.train.item_popularity(),
        )

    def secrets(self) -> Secrets:
        """Training items, held-out items, and the clients' attributes if there are any."""
        held_out = {"held_out.items": held_out_grid(self.case)}
        secrets = {**held_out, **attribute_columns(self.table)}
        return {"ratings": rated_sets(self.case.train), "secrets": secrets}

    def public(self) -> dict[str, Any]:
        """Public sizes."""
        return {"n_items": self.case.n_items, "n_clients": self.case.n_clients}

    def own(self, client: int) -> dict[str, npt.NDArray[Any]]:
        """Items held out of a client, from which its negatives are never drawn."""
        return {"client": np.array([client]), "kept_out": self.case.kept_out.of(client)}


@dataclass(frozen=True, kw_only=True, eq=False)
class MethodTask(RankingTask):
    """A method of the family, whose clients rank their held-out items.

    Args:
        learner: the method.
    """

    learner: Learner

    @property
    @override
    def negatives(self) -> int:
        return int(self.settings.local.negatives)

    @override
    def fresh(self) -> Fresh:
        case = self.case
        algorithm = ranked(self.learner(self.settings, case.n_items), case)
        problem = self.problem(vault_of(case.train))
        if not isinstance(algorithm, SingleTables):
            return Fresh(algorithm, problem)
        return Fresh(algorithm, problem, bag_shapes(algorithm.bag_sizes()))


def _device(
    algorithm: Any,
    facts: Mapping[str, Any],
    own: Mapping[str, npt.NDArray[Any]],
    *,
    learner: Learner,
) -> Algorithm:
    """The method on a separate host, without measurements."""
    lengths = np.zeros(facts["n_clients"], dtype=np.int64)
    items = own.get("kept_out", np.zeros(0, dtype=np.int32))
    if own:
        lengths[own["client"]] = len(items)
    kept_out = Ragged(np.concatenate([[0], np.cumsum(lengths)]), items)
    method = learner(algorithm, facts["n_items"])
    return item_tables(method, facts["n_clients"], kept_out=kept_out)


def load_case(wanted: Wanted, *, task: Callable[..., RankingTask]) -> Undivided:
    """Read the rating table of a configuration, and hold two items of every client out.

    Args:
        wanted: what is read.
        task: makes what is audited, of the fields of ``RankingTask``.

    Raises:
        DataError: it is missing or damaged, or a client has nothing to hold out.
    """
    data: RankingData | RankingFileData = wanted.data
    source, seed = load_source(wanted), wanted.seed
    made = task(
        settings=wanted.algorithm,
        table=source.table,
        case=ranking_case(source.table, protocol=data.protocol, seed=seed, latest=source.latest),
        seed=seed,
        cohort=wanted.cohort,
    )
    return Undivided(made)


def _require_method_settings(settings: type) -> None:
    if not is_dataclass(settings):
        return  # the loader of plug-ins refuses what are not settings
    known = {each.name for each in fields(settings)}
    for name in ("rank", "rounds", "local"):
        if name not in known:
            problem = (
                "is missing: settings of a method have rank (of an item's vector), rounds, local"
            )
            raise ConfigError(f"{settings.__name__}.{name}", MISSING, problem)


def item_table_system(
    name: str,
    learner: Learner,
    settings: type,
    *,
    title: str,
    stays: str,
    found: str,
    beside: str = "",
) -> System:
    """The system of a method of the family.

    Args:
        name: in configurations: that of the module.
        learner: the method.
        settings: their class.
        title: its name, with its publication in brackets, if any.
        stays: what never leaves a client.
        found: what the suite reads from its uploads.
        beside: what leaves a client in addition to the change of its item table.

    Raises:
        ConfigError: the settings lack fields that every method has (``MethodConfig``).
    """
    _require_method_settings(settings)
    of_set, of_file = (
        DataKind(kind, settings, metrics=METRICS) for kind in (RankingData, RankingFileData)
    )
    leaves = f"the change of the item table{beside}, and a 1 that counts clients, for a mean"
    return System(
        name=name,
        statement=lambda _: Statement(
            name=title,
            stays=stays,
            leaves=leaves,
            remark="Keeping the user's side at the client does not hide it from a reader of the "
            "change of the item table: rows of items that the client interacted with and rows of "
            "sampled items move in opposite directions.",
        ),
        kinds=MappingProxyType({**dict.fromkeys(DATASETS, of_set), FILE: of_file}),
        default_data="ml-100k",
        claims=claims_about(
            Subject(
                name=title.partition(" (")[0],
                of="",
                things="item tables",
                uploads="every client's change of the item table",
                sums="the sum of the changes, and over how many clients",
                clients="clients",
                bears_noise=True,
                few="an item that one client alone trained on is that client's row in the sum",
            ),
            Claim(
                system=f"{title}, {'as published' if title.endswith(')') else 'unprotected'}",
                hides="nothing of what is sent; the user's side of the model is not sent",
                assumes="nothing",
                lossless=True,
                found=found,
            ),
        ),
        attacks=FAMILIES["item tables"],
        load=partial(load_case, task=partial(MethodTask, learner=learner)),
        device=partial(_device, learner=learner),
    )


def plug_in_system(
    name: str, below: Learner, settings: type, *, title: str, stays: str, beside: str = ""
) -> System:
    """The system of a method of the family with Fed3CR as a plug-in.

    Args:
        name: in configurations: that of the module.
        below: the method.
        settings: the class of its settings, with those of the plug-in in ``enhancement``.
        title: what both are called.
        stays: what never leaves a client.
        beside: what leaves a client in addition to the changes of its item table and of the
            generator.
    """

    def learner(config: Any, n_items: int) -> ItemTableMethod:
        return Enhanced(below(config, n_items), config.enhancement)

    return item_table_system(
        name,
        learner,
        settings,
        title=title,
        stays=stays,
        found=GENERATOR_TELLS,
        beside=f"{beside}, and of the generator",
    )


def single_table_system(
    name: str, learner: Learner, settings: type, *, title: str, stays: str, own: str
) -> System:
    """The system of a method whose server reads every client's table, so sums cannot be hidden.

    Args:
        name: in configurations: that of the module.
        learner: the method, a ``MixingMethod``.
        settings: their class.
        title: its name, and its publication.
        stays: what never leaves a client.
        own: what a client sends in addition to its item table, by which the server compares
            clients.
    """
    given = f"the {own} and every row of the item table, under the client's name"
    bare = Claim(
        system=f"{title}, as published",
        hides="nothing of what is sent",
        assumes="nothing",
        lossless=True,
        found=f"the server is given {given}",
    )
    base = item_table_system(name, learner, settings, title=title, stays=stays, found=bare.found)
    statement = Statement(
        name=title,
        stays=stays,
        leaves=f"{base.statement(None).leaves}; {given}, for a bag",
        remark="A server that mixes item tables for each client has to see each of them.",
    )
    return replace(
        base,
        statement=lambda _: statement,
        claims=MappingProxyType({(): bare}),
        bag_claims=MappingProxyType({(): replace(bare, system="its single tables")}),
        gives_to_bags=lambda _: True,
        reads_singles=SingleTables.reads_singles,
    )
