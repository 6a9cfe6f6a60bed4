"""One entry of FedRec++'s tables: a method on one fold, its error and its cost.

FedRec sends virtual ratings beside the real ones, and its public code uses them for the user
vectors as well; FedRec++ takes them out again, which needs user vectors of real ratings alone. At
rho = 0 FedRec is PMF, trained by full steps. The paper reports the last round, and so does this
study.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.core.arrays import IntArray
from secure_fedrec.data import RatingTable
from secure_fedrec.data.splits import k_fold
from secure_fedrec.engines import CohortConfig, LocalEngine, rating_problem, sizes_of
from secure_fedrec.engines.local_engine import RoundReport
from secure_fedrec.errors import DivergedError, EncodingError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import build_stack
from secure_fedrec.protection.base.stack import Stack
from secure_fedrec.protection.cloaks.virtual_ratings import VirtualRatingsConfig
from secure_fedrec.protection.denoisers.config import DenoisersConfig
from secure_fedrec.settings import Count, Natural, NonNegative, OneOf, Rate
from secure_fedrec.streams import Streams
from secure_fedrec.studies.engine import engine_of
from secure_fedrec.studies.resumed import Outcome, Record, StudySettings, as_json, train
from secure_fedrec.wire import Meter

STUDY_FORMAT: Final = 1
"""Of a study as JSON values."""

METHODS: Final = ("fedrec", "fedrec++")
"""Methods of the tables."""

_EVERY: Final = 25


class StudyConfig(StudySettings, section="study"):
    """What is studied.

    Args:
        method: one of ``METHODS``.
        data: name of the ratings.
        fold: that is held out.
        folds: of the ratings.
        seed: of the partition; training draws from streams of their own in every fold.
        rho: virtual items per rated item.
        predict_after: T_predict, rounds with averages for virtual ratings.
        local_steps: T_local, steps of the vector that predicts virtual ratings.
        denoisers: eta; 0 of FedRec.
        share: of the clients, invited to every round; denoisers always are.
        rounds: of training, T.
        learning_rate: gamma of the first round.

    Raises:
        ConfigError: a field is out of range, or FedRec++ is asked for without denoisers or virtual
            ratings, or FedRec with denoisers.
    """

    paper = "FedRec++"
    version = STUDY_FORMAT
    method: Annotated[str, OneOf(METHODS)]
    data: str
    fold: Natural
    folds: Count = 5
    seed: Natural = 1
    rho: NonNegative = 0.0
    predict_after: Natural = 10
    local_steps: Count = 10
    denoisers: Natural = 0
    share: Rate = 1.0
    rounds: Count = 100
    learning_rate: NonNegative = 0.8

    def _agree(self) -> None:
        if (self.method == "fedrec++") != (self.denoisers > 0):
            raise self.refusal("denoisers", "are what FedRec++ has and FedRec has not")
        if self.denoisers and not self.rho:
            raise self.refusal("rho", "denoisers need virtual ratings")

    def algorithm(self) -> PMF:
        """What is trained."""
        users = "rated" if self.method == "fedrec++" else "rated+virtual"
        return PMF(
            PMFConfig.printed(
                rounds=self.rounds,
                learning_rate=self.learning_rate,
                user_update=users if self.rho else "rated",
            )
        )

    def described(self) -> dict[str, Any]:
        """All settings as JSON values, those of the algorithm included."""
        return {**as_json(self), "algorithm": as_json(self.algorithm().config)}

    def layers(self) -> dict[str, Any]:
        """What protects it."""
        layers: dict[str, Any] = {}
        if self.rho:
            layers["virtual-ratings"] = VirtualRatingsConfig(
                rho=self.rho, predict_after=self.predict_after, local_steps=self.local_steps
            )
        if self.denoisers:
            layers["denoisers"] = DenoisersConfig(count=self.denoisers)
        return layers

    def made(
        self,
        data: RatingTable,
        path: Path,
        run_id: str,
        *,
        on_round: Callable[[], object] | None = None,
    ) -> Outcome:
        """Train to the last round; ``on_round`` is called after each."""
        engine, record = _engine(data, self), Record()
        try:
            train(engine, path, record, run_id=run_id, see=_see, every=_EVERY, on_round=on_round)
        except EncodingError as diverged:
            key, value = "study.learning_rate", self.learning_rate
            raise DivergedError(key, value, f"{self.method}: {diverged}") from diverged
        return {
            "clients": data.n_clients,
            "vectors": _vectors(engine.wire.meter, list(engine.stack.denoisers), record),
            "digest": sha256(np.ascontiguousarray(engine.public.table).tobytes()).hexdigest(),
            "seconds": record.seconds,
            "rounds": record.rounds,
        }, {}


def _see(report: RoundReport, record: Record) -> None:
    metrics = report.metrics or {}
    record.rounds.append({"round": report.round, "participants": report.participants, **metrics})


def _engine(table: RatingTable, config: StudyConfig) -> LocalEngine:
    split = k_fold(table, folds=config.folds, fold=config.fold, seed=config.seed)
    algorithm = config.algorithm()
    problem = rating_problem(algorithm, split.train, split.test)
    streams = Streams.from_seed(config.seed * config.folds + config.fold)
    stack = build_stack(
        config.layers(), sizes=sizes_of(algorithm, problem), codec=FixedPoint(), streams=streams
    )
    participants = _participants(config, stack, table.n_clients, streams)
    return engine_of(algorithm, problem, stack, streams, participants=participants)


def _participants(
    config: StudyConfig, stack: Stack, n_clients: int, streams: Streams
) -> Callable[[int], IntArray]:
    """Participants of a round: the invited clients, and the denoisers, which every round needs."""
    if config.share == 1:
        cohort = CohortConfig()
    else:
        cohort = CohortConfig(clients_per_round=max(1, round(config.share * n_clients)))
    denoisers = np.array(stack.denoisers, dtype=np.int64)

    def participants(round_: int) -> IntArray:
        invited = cohort.draw(round_, n_clients, streams)
        return stack.collector.participants(np.union1d(invited, denoisers))

    return participants


def _vectors(meter: Meter, denoisers: list[int], record: Record) -> dict[str, float | None]:
    """Vectors that a client sends and receives in a round, without the public table (table 3)."""
    own = (meter.clients("vectors_sent") + meter.clients("vectors_received")) / len(record.rounds)
    ordinary = np.delete(own, denoisers)
    return {
        "denoiser": float(own[denoisers].mean()) if denoisers else None,
        "ordinary": float(ordinary.mean()),
        "client": float(own.mean()),
    }
