"""Peak memory of an audit, and how many processes may share its work.

An audit trains, then attacks; its memory is computed from sizes. A part is needed once, the rest by
every process that shares the work. There are at most as many processes as the memory limit allows.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from audits.config.audit import AuditConfig
from audits.run.build import Federation
from audits.run.training import projection
from audits.system import Task
from secure_fedrec.blocks import BlockKind
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.core.cores import usable_cores
from secure_fedrec.engines.federated_problem import blocks_of, state_bytes, upload_rows
from secure_fedrec.wire import Step, Traffic

LOADED = 0.23e9
"""Bytes of the packages and of a small audit."""

_BESIDE = {"torch": 0.2e9, "scikit-learn": 0.1e9}
"""Bytes of packages that only some algorithms import, with their dependencies."""

_HELD = 2**28
_AT_ONCE = 1 << 21
"""Pairs that a figure holds at once, and bytes per pair: see ``attacks.scoring``."""

_PAIR, _KEPT_PAIR = 180, 12
_WORD_COPIES, _READ_COPIES = 3, 0.7
_CUTS, _DRAWS = 1026, 2000
_EXAMPLE = 100
_PAIR_SECONDS = 1e-5
"""Bytes of all attacks of an adversary per pair that uploads show: measured on ml-100k."""

_ROW_SECONDS = 1e-6
"""Bytes of a training per row of a round's uploads: measured on ml-100k."""

_LONG = 30.0
"""Seconds of attacks, or of further trainings, from which they are divided among processes."""

_PACKAGES = "the packages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """The processes that share a part of an audit, and their memory.

    Args:
        work: the part of the audit.
        wanted: number of processes if memory allows.
        once: bytes that are needed once, by the setting that would reduce them.
        each: bytes that every process needs, by the setting that would reduce them.
        limit: bytes; None for none.
    """

    work: str
    wanted: int
    once: Mapping[str, float]
    each: Mapping[str, float]
    limit: float | None

    @property
    def workers(self) -> int:
        """The number of processes: as wanted, or as memory allows, at least one."""
        if self.limit is None:
            return self.wanted
        room = self.limit - sum(self.once.values())
        return max(1, min(self.wanted, int(room / sum(self.each.values()))))

    @property
    def parts(self) -> dict[str, float]:
        """Bytes of all processes, by the setting that would reduce them."""
        return {**self.once, **{name: self.workers * size for name, size in self.each.items()}}

    @property
    def lowered(self) -> str | None:
        """A line about processes for which memory is too small; None if it suffices."""
        if self.workers == self.wanted:
            return None
        return (
            f"run.max_memory_gb has room for {self.workers} of {self.wanted} processes that would "
            f"share the {self.work}"
        )


def crews(federation: Federation[Task], folds: int = 1) -> tuple[Crew, Crew]:
    """The processes for further trainings, and for the attacks.

    Args:
        federation: what is to be run.
        folds: that are trained, the recorded one included.
    """
    algorithm, problem, _ = federation.task.fresh()
    config, facts = federation.config, federation.task.facts
    state = 2.0 * state_bytes(algorithm, problem)
    examples = float(problem.vault.example_counts().sum())
    loaded = {*config.audited.libraries, *sys.modules}  # some are imported only by the training
    packages = LOADED + sum(size for name, size in _BESIDE.items() if name in loaded)
    once = {_PACKAGES: packages, "clients (data)": state + _EXAMPLE * examples}
    limit = None if config.run.max_memory_gb is None else config.run.max_memory_gb * 1e9
    trainings = Crew(
        work="trainings",
        wanted=_training_workers(federation, folds),
        once=once,
        each={
            f"words of a round ({_width(config)}recording.payload_senders)": _WORD_COPIES
            * _words(federation)
            * 8.0,
            "state of clients (data, run.workers)": state,
        },
        limit=limit,
    )
    pairs, exact = _shown_pairs(federation), 2 if facts.items < 2**16 else 4
    draws = min(float(_HELD), 2.0 * _DRAWS * facts.clients) + facts.clients * _CUTS * exact
    attacks = Crew(
        work="attacks",
        wanted=_attack_workers(federation),
        once=once,
        each={
            "blocks of the recording (recording.payload_rounds, run.workers)": _read(federation),
            "pairs that uploads show (protection.rho, algorithm.rounds, run.workers)": pairs
            * _KEPT_PAIR
            + min(pairs, _AT_ONCE) * _PAIR,
            "draws (data, run.workers)": draws,
        },
        limit=limit,
    )
    return trainings, attacks


def memory_parts(federation: Federation[Task], folds: int = 1) -> dict[str, float]:
    """Bytes of an audit at its peak, by the setting that would reduce them.

    Args:
        federation: what is to be run.
        folds: that are trained, the recorded one included.
    """
    return max((crew.parts for crew in crews(federation, folds)), key=lambda it: sum(it.values()))


def training_parts(federation: Federation[Task]) -> dict[str, float]:
    """As ``memory_parts``, for the recorded training only."""
    trainings, _ = crews(federation)
    return {**trainings.once, **trainings.each}


def _read(federation: Federation[Task]) -> float:
    """Bytes of blocks that are kept, and of the round that is read."""
    size, rounds = projection(federation), len(federation.config.recording.payload_rounds)
    return min(_HELD, size) + (_READ_COPIES * size / rounds if rounds else 0.0)


def _shown_pairs(federation: Federation[Task]) -> float:
    """Pairs of a client and an item that its uploads show, over all rounds."""
    algorithm, problem, _ = federation.task.fresh()
    facts, (rows, sent) = federation.task.facts, _uploads(federation)
    if all(shape.kind is BlockKind.FLAT for shape in blocks_of(algorithm, problem)):
        # Counts all pairs, as for a table among the parameters.
        return float(facts.clients) * max(1, facts.items)
    real = float(problem.vault.example_counts().sum())
    unseen = max(1.0, float(facts.clients) * max(1, facts.items) - real)
    share = min(0.999, max(0.0, rows - real) / unseen)
    shown, at_random = (1.0 - np.prod(1.0 - odds * sent) for odds in (1.0, share))
    return float(real * shown + unseen * at_random)


def _attack_workers(federation: Federation[Task]) -> int:
    """As many as asked for, else one for each core if attacks take long."""
    config = federation.config
    if config.run.workers is not None:
        return config.run.workers
    seconds = _PAIR_SECONDS * _shown_pairs(federation) * max(1, len(config.adversaries))
    return usable_cores() if seconds > _LONG else 1


def _training_workers(federation: Federation[Task], folds: int) -> int:
    """Processes for the folds beside the recorded one and the twin, as for the attacks.

    One process if trainings use PyTorch, whose threads do not survive a fork.
    """
    config = federation.config
    trainings = folds - 1 + int(config.run.check_lossless)
    if trainings < 2 or _of_torch():
        return 1
    if config.run.workers is not None:
        return config.run.workers
    rows, sent = _uploads(federation)
    seconds = _ROW_SECONDS * rows * float(sent.sum()) * trainings
    return usable_cores() if seconds > _LONG else 1


def _of_torch() -> bool:
    """Whether PyTorch is imported: building the federation imports it if needed."""
    return "torch" in sys.modules


def _width(config: AuditConfig) -> str:
    """The key that sets the width of rows, with a comma; empty without such a key."""
    known = (name for name in ("rank", "dim") if hasattr(config.algorithm, name))
    return next((f"algorithm.{name}, " for name in known), "")


def _words(federation: Federation[Task]) -> float:
    """Words of the largest messages of a round, of all clients of the largest cohort.

    None if they are neither recorded nor kept by a protocol until all have arrived: they then pass
    through in batches.
    """
    config = federation.config
    kept = any(round_ <= config.algorithm.rounds for round_ in config.recording.payload_rounds)
    if not kept and not any(_is_real(layer) for layer in config.protection.values()):
        return 0.0
    clients = federation.task.facts.clients
    share = config.cohort.largest(clients) / max(1, clients)
    parts = (part.among(share) for part in _traffic(federation))
    return float(max((part.rows * part.width for part in parts), default=0))


def _is_real(layer: object) -> bool:
    return getattr(layer, "execution", None) == "real"


def _uploads(federation: Federation[Task]) -> tuple[float, FloatArray]:
    """Rows of all clients' uploads in a round, including virtual ones, and their probabilities.

    Returns:
        (rows, float64[rounds]).
    """
    steps = (Step.UPLOAD, Step.SHARE)
    parts = [part for part in _traffic(federation) if part.step in steps]
    most = max(parts, key=lambda part: part.rows, default=None)
    cohort, clients = federation.config.cohort, federation.task.facts.clients
    rounds = range(1, federation.config.algorithm.rounds + 1)
    share = np.array([cohort.invited(round_, clients) for round_ in rounds]) / max(1, clients)
    return (0.0, share) if most is None else (float(most.rows), share**most.invited)


def _traffic(federation: Federation[Task]) -> tuple[Traffic, ...]:
    """Messages of a round with every client invited."""
    algorithm, problem, _ = federation.task.fresh()
    return federation.stack.traffic(upload_rows(algorithm, problem.vault, problem.n_rows))


def require_memory(config: AuditConfig, parts: Mapping[str, float], *, work: str = "audit") -> None:
    """Refuse an audit, or a part of it, above the memory limit.

    Raises:
        ConfigError: the limit is exceeded; the message says what to change.
    """
    limit, needed = config.run.max_memory_gb, sum(parts.values())
    if limit is None or needed <= limit * 1e9:
        return
    if limit * 1e9 <= (least := parts.get(_PACKAGES, LOADED)):
        raise config.run.refusal(
            "max_memory_gb", f"no {work} of this system takes less than {least / 1e9:.2f} GB"
        )
    most = max((name for name in parts if name != _PACKAGES), key=parts.__getitem__)
    raise config.run.refusal(
        "max_memory_gb",
        f"the {work} would take about {needed / 1e9:.2f} GB, most of it for {most}",
    )
