"""Draws docs/recommender-plane.svg: accuracy against what the server learns, and what it costs.

Federated EASE in the clear, under masks and with noise, beside popularity, FedMF, PFedRec and, with
everybody's data in one place, LightGCN and EASE; protocol ``clean``. Run from the repository:
``python -m docs.recommender_plane`` with SECURE_FEDREC_DATA set; only the data sets named behind
it, if any, are measured. What was measured is a line of docs/recommender-plane.csv and is not
measured again. Figures of the rivals are those of the records of ``reproduce fed3cr``, which are
not trained here.

Sums of EASE are formed in one place, as masked sums are equal to them to the bit, and Skellam noise
is added once: the noise of n clients is Skellam noise of n times the variance. Its size is that of
an audit against a server with which no client works, everybody present.
"""

import csv
import json
import math
import resource
import sys
import tempfile
import zipfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from functools import cache, partial
from io import StringIO
from pathlib import Path
from time import perf_counter
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy import sparse
from tqdm import tqdm

from attacks import SUITE, evaluate
from attacks.families.co_occurrences.persons import persons_in
from audits.cli import main
from audits.config import parse_config
from audits.run.build import build_federation, load_dataset
from audits.run.truth import truth_of
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
from secure_fedrec.wire import Adversary, RecordingPolicy

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
PAGE, BEGIN, END = HERE / "federated-ease.md", "<!-- plane: begin -->", "<!-- plane: end -->"
COLUMNS: Final = (
    *("data", "form", "seed", "epsilon", "hit_rate", "ndcg", "full_hit_rate", "proven"),
    *("words_up", "bytes_up", "client_seconds", "server_seconds", "peak_gb"),
)
HEADS: Final = (
    *("data", "what", "HR", "NDCG", "HR of all items", "proven, %", "sent by a client"),
    *("client, s", "server, s", "peak GB"),
)
_FIGURES: Final = ("hit_rate_at_10", "ndcg_at_10", "full_hit_rate_at_10")
READ: Final = ("fedmf", "pfedrec")
"""Rivals whose uploads are read."""
RIVALS: Final = (*READ, "lightgcn", "popularity")
_RANK: Final = 32
_RIGHT: Final = 0.9999
"""Precision of what is read: several steps can turn a row that was hardly moved."""
_SERVER: Final = Adversary(name="server", corrupt=frozenset({"server"}))
NAMES: Final = {
    "exact": "EASE, masked",
    "sketch": "EASE, sketch, not attacked",
    "clear": "EASE, clear or central",
    "fedmf": "FedMF",
    "pfedrec": "PFedRec",
    "lightgcn": "LightGCN, central",
    "popularity": "popularity",
}
FORMS: Final = {
    "exact": ("o", "#0072b2"),
    "sketch": ("o", "#0072b2"),
    "skellam": ("o", "#009e73"),
    "clear": ("s", "#56b4e9"),
    "fedmf": ("^", "#d55e00"),
    "pfedrec": ("v", "#d55e00"),
    "lightgcn": ("D", "#999999"),
}
Row: TypeAlias = dict[str, str]
Key: TypeAlias = tuple[str, float]
"""Form and epsilon."""


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
    return float(found * encoding.bound.l2_square**0.5 / encoding.scale)


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


def measure(case: RankingCase, form: Form, seed: int) -> list[str]:
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
    quality = _percent(found, _FIGURES)
    proven = "0" if form.epsilon else ""
    if form.name == "exact":
        proven = f"{proven_of(algorithm, case, sums):.6g}"
    costs = (words, packed_size(words, bits), client, server, peak)
    return [*quality, proven, *(f"{value:.6g}" for value in costs)]


def proven_of(algorithm: EASE, case: RankingCase, sums: FloatArray) -> float:
    """Share of the interactions in rows that exact sums prove whole."""
    made = algorithm.sums
    if not isinstance(made, Triangle):
        raise TypeError("a sketch is not taken apart")
    persons = persons_in(made.square(sums).astype(np.int64))
    return sum(map(len, persons.whole)) / len(case.rated.items)


def measured(names: Collection[str]) -> list[Row]:
    """Every form on the data sets named, and the rivals; what is in the file stays as it is."""
    rows: list[Row] = []
    if RESULTS.exists():
        with RESULTS.open(newline="", encoding="utf-8") as file:
            rows = [dict.fromkeys(COLUMNS, "") | row for row in csv.DictReader(file)]
    for data in names:
        for seed in SEEDS[data]:
            case = case_of(data, seed)
            for form in tqdm([*forms(case)], desc=f"{data}, seed {seed}"):
                key = (data, form.name, str(seed), f"{form.epsilon:g}")
                if key not in {tuple(row[name] for name in COLUMNS[:4]) for row in rows}:
                    rows.append(_row(*key, *measure(case, form, seed)))
                    write(rows)
        rows = [row for row in rows if row["data"] != data or row["form"] not in RIVALS]
        rows += rivals(data)
        write(rows)
    return rows


def rivals(data: str) -> list[Row]:
    """Methods of ``reproduce fed3cr`` on a data set, as its records have them."""
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(RECORDS).extractall(folder)
        asked = ["--data", data, "--protocol", "clean", "--table", "2", "--out", folder]
        with redirect_stdout(StringIO()):
            main(["reproduce", "fed3cr", "--no-run", "--quiet", "--results", folder, *asked])
        table = json.loads((Path(folder) / "fed3cr.json").read_text())["tables"][0]
    popularity = table["oracles"]["popularity"]
    found = [_row(data, "popularity", "mean", "0", *_percent(popularity, _FIGURES[:2]))]
    for each in table["rows"]:
        if each["method"] not in RIVALS:
            continue
        proven, sent = 1.0, ""
        if each["method"] in READ:
            values = case_of(data, SEEDS[data][0]).n_items * (_RANK + 1)
            sent = f"{8 * values * np.mean(each['chosen']):.6g}"
            proven = read_off(data, each["method"], each["setting"])
        quality = _percent(each["ours"], _FIGURES)
        found.append(_row(data, each["method"], "mean", "0", *quality, f"{proven:.6g}", "", sent))
    return found


def read_off(data: str, method: str, setting: Mapping[str, Any]) -> float:
    """Share of the interactions that a server reads from uploads, nearly all correctly."""
    algorithm: dict[str, Any] = {"name": method, "rounds": 1}
    for key, value in setting.items():
        table, _, name = key.rpartition(".")
        (algorithm.setdefault(table, {}) if table else algorithm)[name] = value
    config = parse_config(
        {
            "seed": 1,
            "data": {"name": data, "protocol": "clean", "min_ratings": 2},
            "algorithm": algorithm,
            "ring": {"fraction_bits": 24, "clip": 65536.0},
            "adversaries": [{"name": _SERVER.name, "corrupt": ["server"]}],
        }
    )
    federation = build_federation(config, load_dataset(config, None).task(0))
    senders = tuple(range(0, federation.fresh().problem.vault.n_clients, 10))
    policy = RecordingPolicy(payload_rounds=(1,), payload_senders=senders)
    run = federation.recorded(policy, None)
    run.run_round()
    truth = truth_of(federation, run.truth)
    found = evaluate(SUITE["signed-rows"], _SERVER, run.transcript, truth, seed=1)
    told = {name: float(found.figures[name] or 0.0) for name in ("precision", "recall")}
    return told["recall"] if told["precision"] >= _RIGHT else 0.0


def write(rows: Sequence[Row]) -> None:
    """All lines, in order."""
    with RESULTS.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def means(rows: Sequence[Row], data: str) -> dict[Key, dict[str, float]]:
    """Mean over the seeds of every figure there is, by form and epsilon."""
    found: dict[Key, list[Row]] = {}
    for row in rows:
        if row["data"] == data:
            found.setdefault((row["form"], float(row["epsilon"])), []).append(row)
    return {
        key: {
            name: float(np.mean([float(row[name]) for row in own]))
            for name in COLUMNS[4:]
            if all(row[name] for row in own)
        }
        for key, own in found.items()
    }


def draw_panel(axes: Axes, data: str, found: Mapping[Key, Mapping[str, float]]) -> None:
    """One data set: what is proven of interactions, against HR@10."""
    labels: list[tuple[float, float, str]] = []
    for (form, epsilon), each in found.items():
        height = each["hit_rate"]
        if form == "popularity":
            axes.axhline(height, linestyle=":", color="#333333")
            axes.annotate(form, (50, height), va="bottom", ha="center", fontsize=8)
            continue
        name = f"EASE, ε = {epsilon:g}" if epsilon else NAMES[form]
        shown = [(name, 100 * each.get("proven", 0.0), form)]
        if form in ("exact", "sketch"):
            shown.append((NAMES["clear"], 100.0, "clear"))
        for label, proven, kind in shown:
            marker, color = FORMS[kind]
            face = color if kind == "clear" or "proven" in each else "none"  # none: not attacked
            axes.plot(proven, height, marker, color=color, markerfacecolor=face, markersize=7)
            sent = f" ({_bytes(each['bytes_up'])})" if each.get("bytes_up") else ""
            labels.append((proven, height, label + sent))
    axes.set_xlim(-6, 106)
    for side in (False, True):
        _write_labels(axes, [each for each in labels if (each[0] > 60) == side])
    axes.set_xlabel("interactions that the server can prove, %")
    axes.set_title(data, loc="left")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _write_labels(axes: Axes, labels: Sequence[tuple[float, float, str]]) -> None:
    """Beside their points, each below the one before."""
    low, high = axes.get_ylim()
    gap, last = (high - low) / 26, np.inf
    for proven, height, label in sorted(labels, key=lambda each: -each[1]):
        last = min(height, last - gap)
        right = proven > 60
        axes.text(
            proven + (-4 if right else 4),
            last,
            label,
            ha="right" if right else "left",
            va="center",
            fontsize=8,
        )


def draw(rows: Sequence[Row]) -> None:
    """The data sets side by side."""
    figure = Figure(figsize=(16.5, 5.2), layout="constrained")
    panels = figure.subplots(1, len(SEEDS))
    for axes, data in zip(panels, SEEDS, strict=True):
        draw_panel(axes, data, means(rows, data))
    panels[0].set_ylabel("HR@10, %, protocol clean")
    figure.savefig(OUTPUT, metadata={"Date": None})


def table(rows: Sequence[Row]) -> str:
    """All forms of EASE, and the rivals, as Markdown."""
    lines = [_line(HEADS), "|---" * len(HEADS) + "|"]
    for data in SEEDS:
        for (form, epsilon), each in means(rows, data).items():
            name = f"EASE, epsilon {epsilon:g}" if epsilon else NAMES[form]
            share = f"{100 * each['proven']:.1f}" if "proven" in each else ""
            sent = _bytes(each["bytes_up"]) if "bytes_up" in each else ""
            figures = [f"{each[key]:.1f}" if key in each else "" for key in COLUMNS[4:7]]
            costs = [f"{each[key]:.2g}" if key in each else "" for key in COLUMNS[10:]]
            lines.append(_line([data, name, *figures, share, sent, *costs]))
    return "\n".join(lines) + "\n"


def write_page(rows: Sequence[Row]) -> None:
    """Put the table where the page has it."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    PAGE.write_text(before + BEGIN + "\n" + table(rows) + "\n" + END + after, encoding="utf-8")


@cache
def case_of(data: str, seed: int) -> RankingCase:
    """What is trained on and held out."""
    found = load_top_n(data, None)
    return ranking_case(found.table, protocol="clean", seed=seed, latest=found.latest)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _percent(figures: Mapping[str, float], names: Sequence[str]) -> list[str]:
    return [f"{100 * figures[name]:.6g}" for name in names]


def _row(*told: str) -> Row:
    return dict.fromkeys(COLUMNS, "") | dict(zip(COLUMNS, told, strict=False))


def _bytes(size: float) -> str:
    return f"{size / 1e6:.1f} MB"


if __name__ == "__main__":
    results = measured(sys.argv[1:] or list(SEEDS))
    if {row["data"] for row in results} >= {*SEEDS}:
        draw(results)
        write_page(results)
