"""Masked federations some of whose clients send in the clear: the others' pads still cancel."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pytest

from attacks import GroundTruth
from attacks.planted.ratings import hidden_but, note_own
from audits.config.audit import parse_config
from audits.run.build import build_federation, load_dataset
from audits.run.training import open_run
from audits.run.truth import ground_truth
from secure_fedrec.algorithms import PMFConfig
from secure_fedrec.algorithms.furl.settings import FURLConfig
from secure_fedrec.algorithms.furl.system import FURL
from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.core.arrays import RingArray
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines.rating_problems import vault_of
from secure_fedrec.models.ncf.split import ITEM_TABLE, PRIVATE, NCFSplit, ncf_loss
from secure_fedrec.models.settings import NCFSplitConfig
from secure_fedrec.protection import VirtualRatingsConfig
from secure_fedrec.protection.base.dense_uploads import DenseWords
from secure_fedrec.protection.masking import embedded
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.wire import Transcript
from tests.attacks.conftest import train
from tests.attacks.test_attack_furl import ROUNDS, record

SHARES = (0.01, 0.03, 0.1, 0.2)


def some_of(clients: int, share: float, seed: int = 3) -> frozenset[int]:
    """So many clients, drawn at random."""
    size = round(share * clients)
    return frozenset(np.random.default_rng(seed).permutation(clients)[:size].tolist())


class _SomePads(embedded._Pads):
    """Pads of all but some clients, which send their words as they are."""

    clear: frozenset[int]

    def __init__(self, *about: Any) -> None:
        super().__init__(*about)
        hidden = [client for client in self._next if client not in self.clear]
        self._next = dict(zip(hidden, [*hidden[1:], *hidden[:1]], strict=True))

    def hide(self, part: DenseWords) -> RingArray:
        words = part.words.copy()
        hidden = np.array([client not in self.clear for client in part.clients.tolist()])
        some = DenseWords(
            clients=part.clients[hidden], words=part.words[hidden], layout=part.layout
        )
        words[hidden] = super().hide(some)
        return self._codec.reduce(words)


@contextmanager
def in_the_clear(clients: frozenset[int]) -> Iterator[None]:
    """Masked rounds of which these clients leave their masks away."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(embedded, "_Pads", type("Some", (_SomePads,), {"clear": clients}))
        yield


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A federation to draw."""

    clients: int = 100
    items: int = 150
    mean_ratings: float = 12.0
    seed: int = 5


def pmf(shape: Shape, share: float, **others: Any) -> tuple[Transcript, GroundTruth]:
    """Matrix factorization, masked in the recording."""
    run, truth = train(
        data=SyntheticConfig(**asdict(shape)),
        algorithm=PMFConfig.printed(rank=6, rounds=3),
        rounds=3,
        payload_rounds=(1, 3),
        seed=shape.seed,
        **others,
    )
    if "denoisers" not in others:
        note_own(run)
    return hidden_but(run.transcript, some_of(shape.clients, share), seed=shape.seed), truth


def fedrecpp(shape: Shape, share: float) -> tuple[Transcript, GroundTruth]:
    """The same with virtual ratings, and denoisers, who upload nothing."""
    return pmf(shape, share, cloak=VirtualRatingsConfig(rho=1.0), denoisers=shape.clients // 10)


def pfedrec(shape: Shape, share: float) -> tuple[Transcript, GroundTruth]:
    """Score functions of the clients' own, under masks that some leave away."""
    raw: dict[str, Any] = {
        "seed": shape.seed,
        "data": {"name": "synthetic", **asdict(shape), "protocol": "clean"},
        "algorithm": {"name": "pfedrec", "rounds": 3, "rank": 8},
        "recording": {"payload_rounds": [1, 2, 3]},
        "adversaries": [{"name": "server", "corrupt": ["server"]}],
        "protection": [{"layer": "masking", "execution": "simulated", "min_survivors": 8}],
    }
    del raw["data"]["seed"]
    config = parse_config(raw)
    task = load_dataset(config, None).task(0)
    with in_the_clear(some_of(shape.clients, share)):
        run = open_run(build_federation(config, task, priced=False), None, resume=False)
        for _ in range(3):
            run.run_round()
    return run.transcript, ground_truth(task.secrets(), run.truth, name="synthetic")


def furl(shape: Shape, share: float) -> tuple[Transcript, GroundTruth]:
    """A network of which the users' vectors stay home, under masks that some leave away."""
    table = generate(SyntheticConfig(**asdict(shape)))
    config = NCFSplitConfig(items=shape.items, dim=5, hidden=(12, 6), centre=3.0, deviation=0.0)
    settings = FURLConfig(rounds=ROUNDS, local=LocalTrainingConfig(learning_rate=0.3))
    algorithm = FURL(lambda: NCFSplit(config), ncf_loss, settings, private=PRIVATE)
    knowledge = {"item_table": ITEM_TABLE, "negatives": 0}
    layers = {"masking": MaskingLayerConfig(min_survivors=8)}
    with in_the_clear(some_of(shape.clients, share)):
        run = record(algorithm, vault_of(table), knowledge, layers, (1, 2))
    return run.transcript, GroundTruth(recorded=run.truth, train=table)


FEDERATIONS: Mapping[str, Callable[[Shape, float], tuple[Transcript, GroundTruth]]] = {
    each.__name__: each for each in (pmf, fedrecpp, pfedrec, furl)
}
