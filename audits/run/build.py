"""From a configuration to a federation: data, algorithm, protection stack, streams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from audits.config.audit import AuditConfig
from audits.rating_data import FILE
from audits.run.coalitions import require_withstood
from audits.run.privacy import require_priced, with_noise_found
from audits.system import Dataset, Fresh, Task, Wanted
from audits.systems import DATA, SYSTEMS
from secure_fedrec.algorithms.base import Algorithm, PublicState
from secure_fedrec.engines import Evaluate, LocalEngine, RecordedRun, sizes_of
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import Sizes, Stack, Withstood, build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.studies.engine import engine_of
from secure_fedrec.vault import Vault
from secure_fedrec.wire import Adversary, RecordingPolicy

TaskT = TypeVar("TaskT", bound=Task)
TaskT_co = TypeVar("TaskT_co", bound=Task, covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Federation(Generic[TaskT_co]):
    """Everything a run needs.

    Args:
        config: the configuration.
        task: what is learnt, and the algorithm.
        stack: the protection stack.
        streams: random streams.
    """

    config: AuditConfig
    task: TaskT_co
    stack: Stack
    streams: Streams

    def under(self, secrets: Mapping[int, bytes] | None) -> Self:
        """The federation with clients that draw their own values under their own secrets.

        Args:
            secrets: 32 bytes by client; None derives everything from the seed.
        """
        if secrets is None:
            return self
        streams = self.streams.of_clients(secrets)
        stack = stack_of(self.config, self.sizes(), streams)
        return replace(self, streams=streams, stack=stack)

    def algorithm(self) -> Algorithm:
        """A fresh algorithm."""
        return self.task.fresh().algorithm

    def sizes(self, algorithm_settings: Any = None) -> Sizes:
        """The sizes for building a stack, optionally for other settings of the algorithm."""
        task: Any = self.task
        if algorithm_settings is not None:
            task = replace(task, settings=algorithm_settings)
        algorithm, problem, bags = task.fresh()
        cohort = self.config.cohort.largest(problem.vault.n_clients)
        return sizes_of(algorithm, problem, cohort=cohort, bags=bags)

    def fresh(self) -> Fresh:
        """Algorithm and problem of a further run, measured as the configuration says."""
        fresh = self.task.fresh()
        if fresh.problem.evaluate is None:
            return fresh
        evaluate = _measured(self.config, fresh.problem.evaluate)
        return fresh._replace(problem=replace(fresh.problem, evaluate=evaluate))

    def engine(self, fresh: Fresh, *, stack: Stack | None = None, **others: Any) -> LocalEngine:
        """Runs an algorithm and problem of it, without a recording.

        Args:
            fresh: algorithm and problem.
            stack: stack of layers; None for the federation's.
            others: further arguments of ``LocalEngine``.
        """
        stack = self.stack if stack is None else stack
        return engine_of(fresh.algorithm, fresh.problem, stack, self.streams, **others)

    def recorded(self, policy: RecordingPolicy, directory: Path | None) -> RecordedRun:
        """A further run, recorded in a folder or, without one, in memory."""
        fresh = self.fresh()
        return RecordedRun(
            algorithm=fresh.algorithm,
            stack=self.stack,
            problem=fresh.problem,
            streams=self.streams,
            policy=policy,
            directory=directory,
            cohort=self.config.cohort,
        )

    @property
    def denoiser_clients(self) -> tuple[int, ...]:
        """Client number of each denoiser; empty without denoisers."""
        return self.stack.denoisers


def load_dataset(config: AuditConfig, data_dir: Path | None) -> Dataset:
    """The data set of a configuration.

    Args:
        config: the configuration.
        data_dir: folder of the data sets; None for their usual places, and for own files and
            plug-ins the folder of the configuration.

    Raises:
        DataError: it is missing, damaged, or holds invalid data.
        ConfigError: a setting does not fit it.
    """
    if data_dir is None and config.data.name in (FILE, *DATA):
        data_dir = config.folder
    wanted = Wanted(config.data, config.algorithm, config.seed, data_dir, config.cohort)
    return config.audited.load(wanted)


def load_federation(
    config: AuditConfig, data_dir: Path | None, *, priced: bool = True
) -> Federation[Task]:
    """The audited fold of a configuration.

    Args:
        config: the configuration.
        data_dir: see ``load_dataset``.
        priced: see ``build_federation``.

    Raises:
        DataError: as ``load_dataset``.
        ConfigError: as ``build_federation``.
    """
    dataset = load_dataset(config, data_dir)
    return build_federation(config, dataset.task(dataset.folds[0]), priced=priced)


def build_federation(config: AuditConfig, task: TaskT, *, priced: bool = True) -> Federation[TaskT]:
    """Build the federation of a configuration, with its layers.

    Args:
        config: the configuration.
        task: what is learnt.
        priced: whether to refuse noise whose price over the whole run cannot be stated.

    Raises:
        ConfigError: a setting does not fit the data (denoisers, cohort, ring), or noise its budget.
    """
    streams = Streams.from_seed(config.seed)
    algorithm, problem, bags = task.fresh()
    if config.system in SYSTEMS.added:
        _require_traits(config, algorithm)
    n_clients, per_round = problem.vault.n_clients, config.cohort.clients_per_round
    if per_round is not None and per_round > n_clients:
        raise config.cohort.refusal("clients_per_round", f"there are only {n_clients} clients")
    _require_plain_schedule(config)
    sizes = sizes_of(algorithm, problem, cohort=config.cohort.largest(n_clients), bags=bags)
    for sender in config.recording.payload_senders or ():
        if sender >= n_clients:
            raise ConfigError(
                "recording.payload_senders", sender, f"clients are 0 to {n_clients - 1}"
            )
    stack = stack_of(config, sizes, streams)
    claims, denoisers = stack.withstands(sizes.cohort), len(stack.denoisers)
    require_parties(config.adversaries, claims, n_clients=n_clients, denoisers=denoisers)
    if priced:
        require_priced(config, stack, sizes)
    return Federation(config=config, task=task, stack=stack, streams=streams)


def _require_traits(config: AuditConfig, algorithm: Algorithm) -> None:
    """Refuse an algorithm that does not state what its rows are: attacks could not prove anything.

    Raises:
        ConfigError: the statement is missing or unknown.
    """
    from secure_fedrec.testing.algorithms import require_traits  # noqa: PLC0415 - of plug-ins only

    try:
        require_traits(algorithm)
    except AssertionError as broken:
        raise ConfigError("algorithm.name", config.system, f"the algorithm {broken}") from broken


def stack_of(config: AuditConfig, sizes: Sizes, streams: Streams) -> Stack:
    """The stack of a configuration for a federation of the given sizes.

    Raises:
        ConfigError: a setting does not fit them, or noise its budget.
    """
    return build_stack(
        with_noise_found(config.protection, rounds=config.algorithm.rounds, sizes=sizes),
        sizes=sizes,
        codec=config.ring,
        streams=streams,
        bag_layers=config.bag_protection,
    )


def _require_plain_schedule(config: AuditConfig) -> None:
    """Refuse ``everybody_in`` rounds that do not exist, or with layers for one cohort size.

    Raises:
        ConfigError: such a round is named.
    """
    full, rounds = config.cohort.everybody_in, config.algorithm.rounds
    if any(round_ > rounds for round_ in full):
        raise config.cohort.refusal("everybody_in", f"there are only {rounds} rounds")
    if full and (config.protection or config.bag_protection):
        problem = "layers of protection are built for one cohort size"
        raise config.cohort.refusal("everybody_in", problem)


def require_parties(
    adversaries: Sequence[Adversary], claims: Sequence[Withstood], *, n_clients: int, denoisers: int
) -> None:
    """Refuse an adversary with parties the federation does not have, or outside the claims.

    Raises:
        ConfigError: the adversary has such a party, or is outside the claims.
    """
    counts = {"client": n_clients, "denoiser": denoisers}
    for adversary in adversaries:
        for role, count in counts.items():
            absent = [number for number in adversary.members(role) or () if number >= count]
            if absent:
                raise ConfigError(
                    "adversaries.corrupt",
                    f"{role}:{min(absent)}",
                    f"there are {count} {role}s, numbered from 0",
                )
    require_withstood(adversaries, claims, n_clients=n_clients)


def _measured(config: AuditConfig, evaluate: Evaluate) -> Evaluate:
    """Measure the figures of reports, every few rounds and after the last."""
    every, last = config.run.evaluate_every, config.algorithm.rounds

    def measure(public: PublicState, vault: Vault) -> dict[str, float] | None:
        if public.round % every and public.round != last:
            return None
        found = evaluate(public, vault) or {}
        return {name: found[name] for name in config.metrics if name in found} or None

    return measure
