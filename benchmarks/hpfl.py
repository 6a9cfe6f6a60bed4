"""``hpfl``: a round of all HPFL clients against the same round trained by a plain PyTorch loop.

The loop is what most people would write: per client a module with embeddings, batches gathered by
index, automatic differentiation, ``torch.optim.Adam``, an evaluation after every epoch. Updates,
accuracies, K-means and sums are the same code in both rounds, and so are the random orders; the
trained models must agree, or nothing is timed.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.federations import Options
from benchmarks.measure import interleave, progress, ratio
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.system import HPFL
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.data.organisations.registry import load_organisations
from secure_fedrec.data.organisations.synthetic import (
    SyntheticOrganisationsConfig,
    generate_organisations,
)
from secure_fedrec.data.organisations.tables import Organisations
from secure_fedrec.engines import LocalEngine
from secure_fedrec.errors import DataError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.gum.arrays import Records
from secure_fedrec.models.gum.model import GUM, GUMConfig
from secure_fedrec.models.gum.training import GUMTraining, Trained, train
from secure_fedrec.protection import Sizes, build_stack
from secure_fedrec.protection.bags import BagShape
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Meter, Wire

__all__ = ["run", "train_with_torch"]

TARGETS: Final = {"speedup_vs_torch_loop": ">= 5", "largest_difference": "<= 1e-8"}

_SEED = 1
_AGREEMENT = 1e-8
_SYNTHETIC = SyntheticOrganisationsConfig(
    clients=10, users=92, items=1680, listed=0.7, attributes=19, mean_records=106.0, seed=_SEED
)
_QUICK_SYNTHETIC = SyntheticOrganisationsConfig(
    clients=4, users=30, items=300, attributes=19, mean_records=40.0, seed=_SEED
)


def run(options: Options) -> dict[str, Any]:
    """All figures of the benchmark, as JSON values."""
    torch.set_num_threads(1)
    source, organisations = _organisations(options)
    config = HPFLConfig(
        rounds=1, gum=GUMConfig(scale=5.0, start="identity"), training=GUMTraining(epochs=5)
    )
    ours = _engine(HPFL(config, organisations), organisations)
    loop = _engine(HPFL(config, organisations, trainer=train_with_torch), organisations)
    progress("one round of each: must agree")
    ours.run_round(), loop.run_round()
    difference = _largest_difference(ours, loop)
    if not difference <= _AGREEMENT:
        raise AssertionError(f"the rounds differ by {difference}")
    progress("rounds: ours, torch loop")
    repeats = 1 if options.quick else 5
    timings = interleave(
        {"ours": ours.run_round, "torch_loop": loop.run_round}, repeats=repeats, warm_up=0
    )
    parts = _training_parts(organisations, config, repeats)
    return {
        "benchmark": "hpfl",
        "data": source,
        "clients": organisations.n_clients,
        "records": len(organisations.train),
        "epochs": config.training.epochs,
        "speedup_vs_torch_loop": ratio(timings, "torch_loop", "ours"),
        **{f"round_seconds_{name}": float(np.median(each)) for name, each in timings.items()},
        **parts,
        "largest_difference": difference,
        "targets": TARGETS,
    }


def train_with_torch(
    gum: GUM,
    parameters: FloatArray,
    records: Records,
    validation: Records,
    config: GUMTraining,
    generator: np.random.Generator,
) -> Trained:
    """``gum_training.train`` as a plain PyTorch loop (the paper's form of the model, Adam)."""
    model = _TorchGUM(gum, parameters)
    optimizer = torch.optim.Adam(model.parameters(), lr=config.learning_rate)
    users, items, scores = (torch.tensor(column) for column in records)
    held = tuple(torch.tensor(column) for column in validation)
    errors, kept, best = [model.error(*held)], 0, parameters.copy()
    size = len(scores)
    for epoch in range(1, config.epochs + 1):
        order = torch.from_numpy(generator.permutation(size))
        for batch in torch.split(order, config.batch_size or size):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(users[batch], items[batch]), scores[batch])
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
        errors.append(model.error(*held))
        if errors[-1] < errors[kept]:
            kept, best = epoch, model.flat()
        if config.patience and epoch - kept >= config.patience:
            break
    return Trained(parameters=best, epochs=epoch, kept=kept, errors=np.array(errors))


class _TorchGUM(nn.Module):
    """GUM in the paper's form with a sigmoid link."""

    def __init__(self, gum: GUM, parameters: FloatArray) -> None:
        super().__init__()
        if gum.config.activation != "identity" or gum.config.slip_and_guess:
            raise ValueError("the loop knows the paper's form only")
        parts = gum.layout.parts(parameters.copy())
        self._scale = gum.config.scale
        self._user_embeddings, self._item_embeddings = _parameters(*parts[:2])
        self._knowledge_user, self._knowledge_item = _parameters(*parts[4:6])
        self._relation, self._hidden = _parameters(*parts[6:])
        self._attributes = torch.from_numpy(_multi_hot(gum).astype(np.float64))

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        """Predictions of a batch."""
        related = self._attributes[items] @ self._relation
        user_side = (
            nn.functional.embedding(users, self._user_embeddings) * related
        ) @ self._knowledge_user
        item_side = (
            nn.functional.embedding(items, self._item_embeddings) * related
        ) @ self._knowledge_item
        return self._scale * torch.sigmoid((user_side - item_side) @ self._hidden)

    def error(self, users: Tensor, items: Tensor, scores: Tensor) -> float:
        """Mean squared error."""
        with torch.no_grad():
            return float(nn.functional.mse_loss(self(users, items), scores))

    def flat(self) -> FloatArray:
        """The parameters in the order of ``GUMLayout``."""
        parts = (part.detach().numpy().reshape(-1) for part in self.parameters())
        return np.concatenate(list(parts))


def _parameters(*tables: FloatArray) -> tuple[nn.Parameter, ...]:
    return tuple(nn.Parameter(torch.from_numpy(table)) for table in tables)


def _multi_hot(gum: GUM) -> BoolArray:
    flags = np.zeros((gum.layout.items, gum.layout.attributes), dtype=np.bool_)
    owners = np.repeat(np.arange(gum.layout.items), np.diff(gum.items.indptr))
    flags[owners, gum.items.attributes] = True
    return flags


def _organisations(options: Options) -> tuple[str, Organisations]:
    folder = options.data_folder
    if folder is not None:
        try:
            return "ml-100k-zip", load_organisations("ml-100k-zip", folder, seed=_SEED)
        except DataError:
            if options.data_dir is not None or (folder / "ml-100k").exists():
                raise
    shape = _QUICK_SYNTHETIC if options.quick else _SYNTHETIC
    return "synthetic (ml-100k-zip shape)", generate_organisations(shape)


def _engine(algorithm: HPFL, organisations: Organisations) -> LocalEngine:
    n_clients, streams = organisations.n_clients, Streams.from_seed(_SEED)
    sizes = Sizes(
        n_clients=n_clients,
        n_items=algorithm.rows,
        width=algorithm.width,
        cohort=n_clients,
        bags={n: BagShape(width=w, most=m) for n, (w, m) in algorithm.bag_sizes.items()},
    )
    return LocalEngine(
        algorithm=algorithm,
        stack=build_stack({}, sizes=sizes, codec=FixedPoint(), streams=streams),
        vault=organisations.vault(),
        n_rows=algorithm.rows,
        streams=streams,
        wire=Wire(meter=Meter(n_clients)),
    )


def _largest_difference(ours: LocalEngine, loop: LocalEngine) -> float:
    """Between the clients' private tables of two engines."""
    pairs = zip(ours.vault.snapshot().values(), loop.vault.snapshot().values(), strict=True)
    return max(float(np.abs(one - other).max()) for one, other in pairs)


def _training_parts(
    organisations: Organisations, config: HPFLConfig, repeats: int
) -> dict[str, float]:
    """Local training alone, of the first client."""
    gum = GUM(config.gum, n_users=organisations.n_users[0], attributes=organisations.attributes[0])
    start = gum.start(np.random.default_rng(_SEED))
    parts = [Records(*part.of(0)) for part in (organisations.train, organisations.validation)]

    def timed(trainer: Callable[..., Trained]) -> Callable[[], Trained]:
        rng = np.random.default_rng(_SEED)
        return lambda: trainer(gum, start, *parts, config.training, rng)

    timings = interleave(
        {"ours": timed(train), "torch_loop": timed(train_with_torch)}, repeats=repeats
    )
    return {
        "training_ratio_torch_loop_over_ours": ratio(timings, "torch_loop", "ours"),
        **{f"training_seconds_{name}": float(np.median(each)) for name, each in timings.items()},
    }
