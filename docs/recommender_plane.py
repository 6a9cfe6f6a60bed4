"""Draws docs/recommender-plane.svg: accuracy against what the server learns, and what it costs.

Federated EASE in the clear, under masks and with noise, beside popularity, FedMF, PFedRec and, with
everybody's data in one place, LightGCN and EASE; protocol ``clean``. Run from the repository:
``python -m docs.recommender_plane`` with SECURE_FEDREC_DATA set; only the data sets named behind it,
if any, are measured. What was measured is a line of docs/recommender-plane.csv and is not measured
again. Figures of the rivals are those of the records of ``reproduce fed3cr``, which are not trained
here.

Sums of EASE are formed in one place, as masked sums are equal to them to the bit, and Skellam noise
is added once: the noise of n clients is Skellam noise of n times the variance. Its size is that of
an audit against a server with which no client works, everybody present.
"""

import csv
import math
import resource
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from time import perf_counter
from typing import Final, NamedTuple

import numpy as np
from scipy import sparse
from tqdm import tqdm

from audits.systems.ease import ranked_figures
from secure_fedrec.accounting.calibrate import find_noise_multiplier
from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.algorithms.ease import EASE, EASEConfig
from secure_fedrec.algorithms.ease.sums import Triangle
from secure_fedrec.algorithms.ease.system import NOISE, SUMS
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.data.top_n import load_top_n
from secure_fedrec.evaluation.protocols import RankingCase, ranking_case
from secure_fedrec.fixedpoint import packed_size
from secure_fedrec.protection.dp.config import ClipConfig, SkellamLayerConfig, encoding_of
from secure_fedrec.protection.dp.sampler import draw_noise
from secure_fedrec.protection.dp.skellam import skellam_events
from secure_fedrec.protection.dp.tables import noise_table
from secure_fedrec.streams import Streams

SEEDS: Final = {"ml-100k": (1, 2, 3), "ml-1m": (1,), "lastfm-2k": (1,)}
EPSILONS: Final = (16.0, 8.0, 4.0, 2.0, 1.0, 0.5)
DELTA: Final = 1e-5
DIGITS: Final = 14
"""Binary digits of a noised value: rounding adds a thousandth to the norm of a contribution."""
LARGEST_SHARE: Final = 2**15
"""Standard deviation, in units, of noise that is drawn at once: a table has some of each."""
AT_ONCE: Final = 2**22
SKETCH: Final = 256
HERE = Path(__file__).parent
RESULTS, OUTPUT = HERE / "recommender-plane.csv", HERE / "recommender-plane.svg"
RECORDS = HERE / "records" / "fed3cr.zip"
_COLUMNS: Final = (
    *("data", "form", "seed", "epsilon", "hit_rate", "ndcg", "full_hit_rate"),
    *("words_up", "bytes_up", "client_seconds", "server_seconds", "peak_gb"),
)


class Form(NamedTuple):
    """A form of EASE.

    Attributes:
        name: in the table.
        config: its settings.
        epsilon: of the noise; 0 for none.
    """

    name: str
    config: EASEConfig
    epsilon: float = 0.0


def forms(case: RankingCase) -> Iterator[Form]:
    """All forms on a data set: a large catalogue is sketched, where sums are exact."""
    if 32 * case.n_items**2 < 1e9:
        yield Form("exact", EASEConfig())
    else:
        yield Form("sketch", EASEConfig(sketch=SKETCH))
    noised = EASEConfig(largest_norm=1.0, solution="eigenvectors", max_memory_gb=16.0)
    for epsilon in EPSILONS:
        yield Form("skellam", noised, epsilon)


def multiplier(algorithm: EASE, epsilon: float) -> float:
    """The noise that a budget takes, as the layer "skellam" finds it."""
    clip = ClipConfig(norm=1.0, count_scale=1e-4)
    noise = SkellamLayerConfig(epsilon=epsilon, delta=DELTA, fraction_bits=DIGITS)
    rows = -(-algorithm.sums.values // algorithm.width)
    encoding = encoding_of(n_items=rows, width=algorithm.width, clip=clip, noise=noise)
    events = partial(skellam_events, encoding=encoding, rounds=1)
    found = find_noise_multiplier(events, epsilon=epsilon, delta=DELTA, adversary="server")
    return found * encoding.bound.l2_square**0.5 / encoding.scale


def summed(algorithm: EASE, case: RankingCase) -> FloatArray:
    """What the server comes to without noise."""
    rated, made = case.rated, algorithm.sums
    if isinstance(made, Triangle):
        return made.total(rated.indptr, rated.items)
    rows = sparse.csr_array(
        (np.ones(len(rated.items)), rated.items, rated.indptr), shape=(case.n_clients, case.n_items)
    )
    return np.asarray(rows.T @ (rows @ made.signs()))


def add_noise(sums: FloatArray, deviation: float) -> None:
    """Add Skellam noise to every sum, in shares that a table holds."""
    variance = (deviation * 2.0**DIGITS) ** 2
    shares = math.ceil(variance / LARGEST_SHARE**2)
    units = noise_table("skellam", variance / shares)
    for _ in range(shares):
        for start in range(0, len(sums), AT_ONCE):
            part = sums[start : start + AT_ONCE]
            part += draw_noise(units, len(part)) / 2.0**DIGITS


def measure(case: RankingCase, form: Form, seed: int) -> list[float]:
    """The columns behind ``epsilon``."""
    algorithm = EASE(form.config, case.n_clients, case.n_items)
    public = algorithm.initial_public(case.n_items, Streams.from_seed(seed))
    sums, deviation, bits = summed(algorithm, case), 0.0, EASE.ring(case.n_clients).bits
    if form.config.sketch:
        bits += case.n_items.bit_length()
    if form.epsilon:
        deviation, bits = multiplier(algorithm, form.epsilon), 32
        add_noise(sums, deviation)
    begun, median = perf_counter(), int(np.argsort(case.train.counts())[case.n_clients // 2])
    own = case.rated.of(median)
    algorithm.sums.of(np.array([0, len(own)]), own)
    client = perf_counter() - begun
    state = PublicState(
        round=1, table=public.table, extras={NOISE: np.array([deviation]), SUMS: sums}
    )
    begun = perf_counter()
    algorithm.scores(state, case.rated.of_all(np.arange(1)))
    server = perf_counter() - begun
    found = ranked_figures(algorithm, state, case)
    words = algorithm.sums.values
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    names = ("hit_rate_at_10", "ndcg_at_10", "full_hit_rate_at_10")
    quality = [100 * found[name] for name in names]
    return [*quality, words, packed_size(words, bits), client, server, peak]


def measured(names: Collection[str]) -> list[dict[str, str]]:
    """Every form on the data sets named; those in the file as they are."""
    rows: list[dict[str, str]] = []
    if RESULTS.exists():
        with RESULTS.open(newline="") as file:
            rows = list(csv.DictReader(file))
    done = {(row["data"], row["form"], row["seed"], row["epsilon"]) for row in rows}
    for data in names:
        for seed in SEEDS[data]:
            case = _case(data, seed)
            for form in tqdm([*forms(case)], desc=f"{data}, seed {seed}"):
                key = (data, form.name, str(seed), f"{form.epsilon:g}")
                if key in done:
                    continue
                figures = [f"{value:.6g}" for value in measure(case, form, seed)]
                rows.append(dict(zip(_COLUMNS, [*key, *figures], strict=True)))
                write(rows)
    return rows


def write(rows: Sequence[dict[str, str]]) -> None:
    """All lines, in order."""
    with RESULTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


@cache
def _case(data: str, seed: int) -> RankingCase:
    found = load_top_n(data, None)
    return ranking_case(found.table, protocol="clean", seed=seed, latest=found.latest)


if __name__ == "__main__":
    measured(sys.argv[1:] or list(SEEDS))
