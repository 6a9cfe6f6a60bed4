"""``furl``: a round of ten FURL clients against the same round as a plain PyTorch loop.

The loop is what most people would write: a module with ``nn.Embedding`` and a bidirectional
``nn.LSTM`` over the padded texts of a client, one copy of the shared weights per client, automatic
differentiation, ``torch.optim.SGD``, and a weighted mean of the differences in floats. It has no
ring, no vault, no messages and no transcript; ours has them all. Both make the same steps (one full
batch per epoch, no dropout), and their new shared weights must agree, or nothing is timed.
"""

from copy import deepcopy
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.federations import Options
from benchmarks.measure import interleave, progress, ratio
from secure_fedrec.algorithms.furl.system import FURL
from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.data.newsgroups import NewsgroupsConfig, load_newsgroups
from secure_fedrec.data.stickers import StickersConfig, generate_stickers
from secure_fedrec.data.user_texts import UserTexts
from secure_fedrec.engines import CohortConfig, LocalEngine, sizes_of
from secure_fedrec.errors import DataError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.settings import DocumentConfig
from secure_fedrec.protection import build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.studies.furl.study import FURLStudyConfig, furl_algorithm, furl_problem
from secure_fedrec.wire import Meter, Wire

__all__ = ["PlainDocument", "run"]

TARGETS: Final = {"largest_difference": "<= 1e-4"}

_SEED, _COHORT, _RATE = 1, 10, 0.5
_AGREEMENT = 1e-4
_STUDY = FURLStudyConfig(
    configuration="personalized-fl",
    epochs=1,
    clients_per_round=_COHORT,
    dropout=0.0,
    training=LocalTrainingConfig(learning_rate=_RATE, batch_size=None),
)


def run(options: Options) -> dict[str, Any]:
    """All figures of the benchmark, as JSON values."""
    torch.set_num_threads(1)
    source, data = _texts(options)
    algorithm = furl_algorithm(_STUDY, classes=len(data.classes), users=data.n_users)
    engine = _engine(algorithm, data)
    cohort = engine.participants(1)
    shared = algorithm.federated_values(engine.public).copy()
    start = PlainDocument.of(algorithm, shared, _STUDY.model(len(data.classes), users=1))
    progress("one round of each: must agree")
    engine.run_round()
    ours = algorithm.federated_values(engine.public)
    difference = float(np.abs(ours - _loop_round(start, data, cohort).flat(algorithm)).max())
    if not difference <= _AGREEMENT:
        raise AssertionError(f"the rounds differ by {difference}")
    progress("rounds: ours, torch loop")
    state = engine.state()

    def our_round() -> None:
        engine.restore(state)
        engine.run_round()

    second = engine.participants(2)
    timings = interleave(
        {"ours": our_round, "torch_loop": lambda: _loop_round(start, data, second)},
        repeats=2 if options.quick else 7,
    )
    return {
        "benchmark": "furl",
        "data": source,
        "clients_per_round": len(cohort),
        "texts": int(data.counts("train")[second].sum()),
        "parameters": len(shared),
        "speedup_vs_torch_loop": ratio(timings, "torch_loop", "ours"),
        **{f"round_seconds_{name}": float(np.median(each)) for name, each in timings.items()},
        "largest_difference": difference,
        "targets": TARGETS,
    }


class PlainDocument(nn.Module):
    """The document model on torch's own layers.

    Args:
        config: widths; maximum pooling, no dropout.
    """

    def __init__(self, config: DocumentConfig) -> None:
        super().__init__()
        self.character_embedding = nn.Embedding(
            config.characters, config.character_dim, padding_idx=0
        )
        self.lstm = nn.LSTM(
            config.character_dim, config.hidden, batch_first=True, bidirectional=True
        )
        self.user_embedding = nn.Embedding(1, config.user_dim)
        self.hidden = nn.Linear(2 * config.hidden + config.user_dim, config.mlp)
        self.output = nn.Linear(config.mlp, config.classes)

    @classmethod
    def of(cls, algorithm: FURL, shared: FloatArray, config: DocumentConfig) -> "PlainDocument":
        """With the shared values of a federation, and its default user vector (zeros)."""
        model = cls(config)
        with torch.no_grad():
            model.user_embedding.weight.zero_()
            for name, values in model.shared(algorithm, shared):
                model.get_parameter(name).copy_(torch.from_numpy(values))
        return model

    def shared(self, algorithm: FURL, flat: FloatArray) -> list[tuple[str, FloatArray]]:
        """The parts of a flat vector by the names they have here."""
        found, place = [], 0
        for segment in algorithm.split.federated:
            name = _plain_name(segment.name)
            shape = self.get_parameter(name).shape
            stop = place + shape.numel()
            found.append((name, flat[place:stop].reshape(shape)))
            place = stop
        return found

    def flat(self, algorithm: FURL) -> FloatArray:
        """The shared values in the federation's order: float64."""
        names = (_plain_name(segment.name) for segment in algorithm.split.federated)
        parts = [self.get_parameter(name).detach().reshape(-1) for name in names]
        return torch.cat(parts).to(torch.float64).numpy()

    def forward(self, text: Tensor, length: Tensor) -> Tensor:
        """Scores of the classes: float[B, classes]."""
        text = text[:, : int(length.max())].long()
        packed = nn.utils.rnn.pack_padded_sequence(
            self.character_embedding(text), length, batch_first=True, enforce_sorted=False
        )
        outputs, _ = nn.utils.rnn.pad_packed_sequence(
            self.lstm(packed)[0], batch_first=True, padding_value=-1.0
        )
        user = self.user_embedding.weight.expand(len(text), -1)
        hidden = torch.relu(self.hidden(torch.cat([outputs.amax(1), user], dim=1)))
        scores: Tensor = self.output(hidden)
        return scores


def _plain_name(name: str) -> str:
    """``forward_lstm.weight_ih_l0`` is ``lstm.weight_ih_l0``, and so on."""
    if name.startswith("backward_lstm."):
        return name.replace("backward_lstm.", "lstm.") + "_reverse"
    return name.replace("forward_lstm.", "lstm.")


def _loop_round(start: PlainDocument, data: UserTexts, cohort: IntArray) -> PlainDocument:
    """One round of Federated Averaging, as a loop over the clients."""
    columns, counts = data.columns("train"), data.counts("train")
    ends = np.concatenate([[0], np.cumsum(counts)])
    shared = [name for name, _ in start.named_parameters() if not name.startswith("user_")]
    steps = {name: torch.zeros_like(start.get_parameter(name)) for name in shared}
    for client in cohort.tolist():
        rows = slice(int(ends[client]), int(ends[client + 1]))
        text, length, label = (
            torch.from_numpy(columns[name][rows]) for name in ("text", "length", "label")
        )
        model = deepcopy(start)
        optimizer = torch.optim.SGD(model.parameters(), lr=_RATE)
        loss = nn.functional.cross_entropy(model(text, length), label)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            for name in shared:
                change = model.get_parameter(name) - start.get_parameter(name)
                steps[name] += float(counts[client]) * change
    total = float(counts[cohort].sum())
    result = deepcopy(start)
    with torch.no_grad():
        for name in shared:
            result.get_parameter(name).add_(steps[name] / total)
    return result


def _texts(options: Options) -> tuple[str, UserTexts]:
    folder = options.data_folder
    if folder is not None:
        try:
            return "20newsgroups", load_newsgroups(folder, NewsgroupsConfig(seed=_SEED))
        except DataError:
            if options.data_dir is not None or (folder / "20newsgroups").exists():
                raise
    return "synthetic stickers", generate_stickers(StickersConfig(users=60, length=128))


def _engine(algorithm: FURL, data: UserTexts) -> LocalEngine:
    streams, problem = Streams.from_seed(_SEED), furl_problem(algorithm, data)
    sizes = sizes_of(algorithm, problem, cohort=_COHORT)
    return LocalEngine(
        algorithm=algorithm,
        stack=build_stack({}, sizes=sizes, codec=FixedPoint(), streams=streams),
        vault=problem.vault,
        n_rows=problem.n_rows,
        streams=streams,
        wire=Wire(meter=Meter(data.n_users)),
        cohort=CohortConfig(clients_per_round=_COHORT),
    )
