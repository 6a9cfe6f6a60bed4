"""One run of Fed3CR's tables: a method on a data set under a protocol, one seed, one setting.

The seed decides what is held out, where training starts and what is drawn. After each round every
client's model is measured as trained, before anything is averaged; under ``published``, of a method
of ``RANKED_AVERAGED``, with what is shared as averaged. The round that is reported is the one with
the largest validation HR@10; figures of the last are kept beside. Test items are not used for any
choice. A study of "oracles" evaluates rules without a model.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any, Final

import numpy as np

from secure_fedrec.algorithms.item_tables import ItemTables, ranked, ranked_between_rounds
from secure_fedrec.algorithms.item_tables.local import ItemTableTraining
from secure_fedrec.algorithms.item_tables.single_tables import SingleTables
from secure_fedrec.algorithms.item_tables.trainer import NEGATIVES
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.data.top_n import TopN
from secure_fedrec.engines import LocalEngine, Problem, vault_of
from secure_fedrec.engines.local_engine import RoundReport
from secure_fedrec.errors import DivergedError, EncodingError
from secure_fedrec.evaluation.leaks import measured_leak
from secure_fedrec.evaluation.oracles import warm_figures
from secure_fedrec.evaluation.protocols import PROTOCOLS, RankingCase, ranking_case
from secure_fedrec.evaluation.ranks import (
    Ranks,
    chosen_round,
    client_figures,
    client_ranks,
    quality,
)
from secure_fedrec.settings import Count, Natural, OneOf
from secure_fedrec.streams import Streams
from secure_fedrec.studies.engine import bag_shapes, unprotected
from secure_fedrec.studies.fed3cr.methods import (
    CENTRAL,
    METHODS,
    ORACLES,
    RANKED_AVERAGED,
    build_method,
    with_settings,
)
from secure_fedrec.studies.fed3cr.views import compare_views
from secure_fedrec.studies.resumed import (
    Outcome,
    Record,
    StudySettings,
    as_json,
    plain,
    train,
)

STUDY_FORMAT: Final = 1
"""Of a study as JSON values."""

FIGURES: Final = tuple(
    f"{kind}{name}"
    for kind in ("", "validation_", "full_")
    for name in ("hit_rate_at_10", "ndcg_at_10")
)
"""Kept per client: ``chosen.NAME`` and ``last.NAME``, or ``RULE.NAME`` of oracles."""

WARM: Final = "warm_hit_rate_at_10"
"""Of clients whose test item is in somebody's training set; of oracles ``RULE.NAME`` as well."""

_EVERY: Final = 5


class StudyConfig(StudySettings, section="study"):
    """What is studied.

    Args:
        method: one of ``METHODS``.
        data: name of the interactions.
        protocol: of the evaluation.
        seed: of everything that is drawn.
        rounds: of training; for oracles, rounds whose draws are used.
        settings: of the method, if they differ from the default; see ``build_method``.

    Raises:
        ConfigError: a name is unknown, or a number out of range.
    """

    paper = "Fed3CR"
    version = STUDY_FORMAT
    method: Annotated[str, OneOf(METHODS)]
    data: str
    protocol: Annotated[str, OneOf(PROTOCOLS)]
    seed: Natural
    rounds: Count
    settings: Mapping[str, Any]

    def described(self) -> dict[str, Any]:
        """All settings as JSON values, including defaults of the method."""
        if self.method == ORACLES:
            return {**as_json(self), "algorithm": {}}
        if self.method in CENTRAL:
            return {**as_json(self), "algorithm": as_json(self.central())}
        method = build_method(self.method, self.settings, rounds=self.rounds, n_items=1)
        ranked_by = {"ranked_by": "averaged table"} if self.averaged else {}
        return {**as_json(self), **ranked_by, "algorithm": plain(method.knowledge())}

    @property
    def averaged(self) -> bool:
        """Whether clients rank with what is shared as averaged, not as they trained it."""
        return self.protocol == "published" and self.method in RANKED_AVERAGED

    def central(self) -> Any:
        """Settings of a central model."""
        from secure_fedrec.studies.central import CentralConfig  # noqa: PLC0415 - brings torch

        start = CentralConfig(model=self.method, epochs=self.rounds, seed=self.seed)
        return with_settings(start, self.settings)

    def made(
        self,
        data: TopN,
        path: Path,
        run_id: str,
        *,
        on_round: Callable[[], object] | None = None,
        threads: int | None = None,
    ) -> Outcome:
        """Train to the last round; ``on_round`` is called after each.

        A study that diverges is written as well: its report has ``diverged``, and the rounds
        before. The result does not depend on ``threads``, the most of training.
        """
        table = data.table
        case = ranking_case(table, protocol=self.protocol, seed=self.seed, latest=data.latest)
        if self.method == ORACLES:
            report, arrays = _oracles(case, self)
        elif self.method in CENTRAL:
            report, arrays = _centrally(case, self, on_round or (lambda: None))
        else:
            report, arrays = _trained(case, self, path, run_id, on_round, threads)
        head = {
            "clients": case.n_clients,
            "items": case.n_items,
            "cold_test_items": int(case.cold.sum()),
            "without_validation": case.without_validation,
        }
        return {**head, **report}, arrays


def _oracles(case: RankingCase, config: StudyConfig) -> Outcome:
    """Rules without a model, and whether the protocol leaks held-out items."""
    leak = measured_leak(
        case,
        rounds=config.rounds,
        stream=Streams.from_seed(config.seed).stream(NEGATIVES),
        seed=config.seed,
        per_positive=ItemTableTraining().negatives,
    )
    # Among all items popularity is ranked as methods are, a tie against it; few items tie there.
    clients = np.arange(case.n_clients)
    popularity = case.train.item_popularity().astype(np.float64)
    alone = [client_ranks(case, clients[n : n + 1], popularity[None]) for n in clients]
    own = client_figures(case, clients, Ranks(*map(np.concatenate, zip(*alone, strict=True))))
    arrays = {
        f"{rule}.{name}": values.astype(np.float32)
        for rule, each in leak.figures.items()
        for name, values in {**each, **warm_figures(case, each)}.items()
    }
    for name in ("full_hit_rate_at_10", "full_ndcg_at_10"):
        arrays[f"popularity.{name}"] = own[name].astype(np.float32)
    means = {
        name: float(np.nanmean(values)) if np.isfinite(values).any() else None
        for name, values in arrays.items()
    }
    return {"means": means, "leaks": leak.leaks, "warning": leak.warning, "seconds": 0.0}, arrays


def _centrally(case: RankingCase, config: StudyConfig, told: Callable[[], object]) -> Outcome:
    """A model of all data, epoch by epoch; it takes minutes, so it is not resumed."""
    from secure_fedrec.studies.central import epochs  # noqa: PLC0415 - brings torch

    record, begun, clients = Record(), perf_counter(), np.arange(case.n_clients)
    for epoch, scores in enumerate(epochs(case, config.central()), start=1):
        _write_down(
            record, epoch, client_figures(case, clients, client_ranks(case, clients, scores))
        )
        told()
    chosen = chosen_round([each["quality"] for each in record.rounds])
    return {
        "chosen": record.rounds[chosen]["round"],
        "seconds": perf_counter() - begun,
        "rounds": record.rounds,
    }, record.kept


def _trained(
    case: RankingCase,
    config: StudyConfig,
    path: Path,
    run_id: str,
    on_round: Callable[[], object] | None,
    threads: int | None,
) -> Outcome:
    """A method, round by round."""
    method = build_method(
        config.method, config.settings, rounds=config.rounds, n_items=case.n_items
    )
    algorithm = ranked(method, case, threads=threads)
    engine = plain_engine(algorithm, case, config.seed)
    record = Record()

    def see(report: RoundReport, record: Record) -> None:
        own = dict(report.of_clients)
        loss = float(np.nanmean(own.pop("training_loss")))
        if config.averaged:
            own = ranked_between_rounds(algorithm, case, engine.public, engine.vault)
        _write_down(record, report.round, own, loss=loss)

    try:
        train(engine, path, record, run_id=run_id, see=see, every=_EVERY, on_round=on_round)
    except (DivergedError, EncodingError) as diverged:
        told = {"diverged": str(diverged), "seconds": record.seconds}
        return {**told, "rounds": record.rounds}, {}
    arrays, known = dict(record.kept), {}
    views = compare_views(engine)
    if views is not None:
        arrays |= {"overlap": views.overlap, "correlation": views.correlation}
        known["overlap"] = float(views.overlap.mean())
    chosen = chosen_round([each["quality"] for each in record.rounds])
    known |= {"chosen": record.rounds[chosen]["round"], "seconds": record.seconds}
    return {**known, "rounds": record.rounds}, arrays


def _write_down(record: Record, round_: int, own: Mapping[str, FloatArray], **more: float) -> None:
    """Means of a round, and the arrays of the best round so far and of the last."""
    record.rounds.append({"round": round_, **more, "quality": quality(own)})
    kept = {name: own[name].astype(np.float32) for name in FIGURES}
    record.kept |= {f"last.{name}": values for name, values in kept.items()}
    if chosen_round([each["quality"] for each in record.rounds]) == len(record.rounds) - 1:
        record.kept |= {f"chosen.{name}": values for name, values in kept.items()}


def plain_engine(algorithm: ItemTables, case: RankingCase, seed: int) -> LocalEngine:
    """A federation of everybody in a case, without protection.

    Args:
        algorithm: made by ``ranked`` for the case.
        case: what clients train on.
        seed: of where training starts and what is drawn.
    """
    problem = Problem(
        vault=vault_of(case.train), n_rows=case.n_items, knowledge={"n_items": case.n_items}
    )
    sizes = algorithm.bag_sizes() if isinstance(algorithm, SingleTables) else {}
    bags = bag_shapes(sizes)
    return unprotected(algorithm, problem, Streams.from_seed(seed), bags=bags)
