"""Measures what a tail floor, a coarser ring and noise are worth against ``sum-decoding``.

Draws docs/sum-decoding.svg and writes the section of docs/protection/masking.md, both from
docs/sum-decoding.csv. Run from the repository: ``python -m docs.sum_decoding_curve [DATA ...]``
with SECURE_FEDREC_DATA set. A federation that has its lines in the CSV is not measured again, and
each has them as soon as it is measured; without that file all are.
``--quick`` measures a small generated federation alone, and changes no file.

Masked federations of matrix factorization of rank 20, the settings of
``audits/configs/masking-ml100k.toml`` but for 40 rounds, fold 0. The server attacks its sums with
the payloads of one round: of the first, knowing nothing or the first private vectors, which follow
from the seed, and of the last.
"""

import argparse
import csv
import math
import textwrap
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar, get_type_hints

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tqdm import tqdm

from attacks import Claims, evaluate
from attacks.base import AttackCard
from attacks.families.sums.sum_decoding import SumDecoding
from attacks.scoring.truth import NotApplicable
from attacks.view.coalition import others_sum, words_of
from audits.config import AuditConfig, parse_config
from audits.run.build import Federation, build_federation, load_dataset, stack_of
from audits.run.truth import truth_of
from audits.system import Dataset
from secure_fedrec.engines import RecordedRun
from secure_fedrec.errors import EncodingError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.wire import Adversary, RecordingPolicy, View

HERE = Path(__file__).parent
PRESET = HERE.parent / "audits" / "configs" / "masking-ml100k.toml"
NOISED = PRESET.with_name("skellam-ml100k.toml")
RESULTS, OUTPUT = HERE / "sum-decoding.csv", HERE / "sum-decoding.svg"
PAGE = HERE / "protection" / "masking.md"

LAST = 40
"""Rounds: the rating error moves by 0.0001 in the sixty after them."""

FLOORS = (0, 2, 3, 5, 10)
EXACT = FixedPoint().fraction_bits
DIGITS = (EXACT, 16, 12, 8, 6, 4, 3, 2)
BETWEEN = (16, 12)
"""Of these, digits that are tried on the generated federation alone: between many bits and few, the
search among hundreds of clients was given up after minutes."""

SHORT = 8
"""Digits up to which the last round of ml-100k is searched: with more, it was given up as well."""

EPSILONS = (8.0, 2.0)
_LASTFM = {"name": "lastfm-2k", "split": "leave-one-out", "sample_clients": 300}
_SPARSE = {"name": "synthetic", "clients": 40, "items": 300, "mean_ratings": 8.0}
DATA: Mapping[str, Mapping[str, Any]] = {
    "ml-100k": {"name": "ml-100k"},
    "lastfm-2k": _LASTFM,
    "generated": _SPARSE,
}
JUDGED = "ml-100k"
"""Whose accuracy tells something: on the other two no model of rank 20 beats a trivial rule."""

QUICK: Mapping[str, Mapping[str, Any]] = {
    "small": {"name": "synthetic", "clients": 20, "items": 60, "mean_ratings": 5.0}
}

_SERVER = Adversary(name="server", corrupt=frozenset({"server"}))


class Case(NamedTuple):
    """One federation.

    Attributes:
        data: name of the data set.
        floor: fewest raters of a row that is summed; 0 sums all.
        digits: binary digits of a value after the point.
        epsilon: of the noise over all rounds; 0 is none.
        biases: whether item biases alone are learned, by the settings of the preset with noise.
    """

    data: str
    floor: int = 0
    digits: int = EXACT
    epsilon: float = 0.0
    biases: bool = False


class Row(NamedTuple):
    """What one adversary reads in one of its rounds, and what the federation costs.

    Attributes:
        round: whose payloads are read.
        knows: "nothing", or "seed": the private vectors before the first round.
        clients: of the federation.
        exposed: clients of whom an interaction, a rating or the vector is certain.
        vectors: private vectors that are known beforehand, or solved for certain.
        interactions: certain interactions.
        share: of all interactions.
        profile: share of the set of the client who loses most.
        wrong: certain claims that are false.
        explained: raters of the largest sum that is explained.
        reach: raters of the largest sum that bits and budget would explain.
        bits: informative bits of a row of one rater.
        kept_back: share of the rated items whose rows the floor keeps back.
        lossless: whether sums are those of plain training, bit for bit.
        metric, utility: how good the model is after the last round; "diverges" has no value.
        reason: why the attack does not apply, or solves no row.
    """

    round: int
    knows: str
    clients: int
    exposed: int
    vectors: int
    interactions: int
    share: float
    profile: float
    wrong: int
    explained: int
    reach: int
    bits: float
    kept_back: float
    lossless: bool
    metric: str
    utility: float
    reason: str


Found: TypeAlias = dict[Case, list[Row]]
T = TypeVar("T", Case, Row)


def cases(names: Iterable[str]) -> list[Case]:
    """All federations on the data sets named."""
    found: list[Case] = []
    for name in names:
        if name in QUICK:
            found += [Case(name), Case(name, floor=2), Case(name, digits=3)]
            continue
        found += [Case(name, floor=floor) for floor in FLOORS]
        found += [Case(name, digits=digits) for digits in digits_of(name)[1:]]
        if name == JUDGED:
            found += [Case(name, epsilon=EPSILONS[0])]
            found += [Case(name, epsilon=epsilon, biases=True) for epsilon in EPSILONS]
    return found


def digits_of(name: str) -> tuple[int, ...]:
    """Digits of the rings that are tried on a data set."""
    return tuple(each for each in DIGITS if name == "generated" or each not in BETWEEN)


def _noised(epsilon: float) -> list[dict[str, Any]]:
    """Layers of the preset with noise, within a budget."""
    layers: list[dict[str, Any]] = tomllib.loads(NOISED.read_text(encoding="utf-8"))["protection"]
    return [each | ({"epsilon": epsilon} if "epsilon" in each else {}) for each in layers]


@cache
def config_of(case: Case) -> AuditConfig:
    """Its configuration."""
    raw = tomllib.loads((NOISED if case.biases else PRESET).read_text(encoding="utf-8"))
    data: dict[str, Any] = {**{**DATA, **QUICK}[case.data]}
    if data.get("split", "k-fold") == "k-fold":
        data |= {"folds": 5, "fold": 0}
    del raw["gates"], raw["recording"]
    if case.epsilon:
        layers = _noised(case.epsilon)
    else:
        layers = [{"layer": "masking", "tail_floor": case.floor}]
    if not case.biases:
        raw["algorithm"] |= {"rounds": 3 if case.data in QUICK else LAST}
    changed = {"data": data, "protection": layers, "ring": {"fraction_bits": case.digits}}
    return parse_config(raw | changed)


def measure(case: Case) -> list[Row]:
    """Train a federation, and attack its first and its last round."""
    config, federation = config_of(case), _federation(case)
    last, metric = config.algorithm.rounds, config.metrics[-1]
    run = federation.recorded(RecordingPolicy(payload_rounds=(1, last), payload_senders=()), None)
    utility = math.nan
    run.run_round()
    if case.data == JUDGED or not case.floor:
        with suppress(EncodingError):  # noise beyond what a ring holds
            utility = _trained(federation, run, plain=not (case.floor or case.epsilon))[metric]
    truth = truth_of(federation, run.truth)
    counts = truth.ratings.item_popularity()
    attacks = [(1, "nothing")]
    if case.data != JUDGED:  # among its 943 known vectors a search was given up
        attacks.append((1, "seed"))
    long = case.data == JUDGED and case.digits > SHORT
    if run.completed == last and not case.floor and not long:
        attacks.append((last, "nothing"))
    rows = []
    for round_, knows in attacks:
        server = replace(_SERVER, knows=frozenset({"seed"} if knows == "seed" else ()))
        found = evaluate(_InRound(SumDecoding(), round_), server, run.transcript, truth, seed=0)
        figures, details = {k: v or 0.0 for k, v in found.figures.items()}, found.details
        interactions = int(figures.get("interactions_exposed", 0))
        rows.append(
            Row(
                round=round_,
                knows=knows,
                clients=truth.ratings.n_clients,
                exposed=int(figures.get("clients_exposed", 0)),
                vectors=int(details.get("vectors_solved", 0)),
                interactions=interactions,
                share=round(interactions / len(truth.ratings), 5),
                profile=round(figures.get("largest_profile", 0.0), 4),
                wrong=int(figures.get("disclosures_wrong", 0)),
                explained=int(details.get("largest_sum_explained", 0)),
                reach=int(details.get("largest_sum_within_reach", 0)),
                bits=float(details.get("informative_bits_per_row", 0.0)),
                kept_back=round(float((counts[counts > 0] < case.floor).mean()), 4),
                lossless=config.claims_lossless,
                metric=metric,
                utility=round(utility, 4),
                reason=found.reason or str(found.details.get("unsolved", "")),
            )
        )
    return rows


@dataclass(frozen=True)
class _InRound:
    """An attack by an adversary that looked at one round."""

    attack: SumDecoding
    round: int

    @property
    def name(self) -> str:
        return self.attack.name

    @property
    def card(self) -> AttackCard:
        return self.attack.card

    def run(self, view: View) -> Claims | NotApplicable:
        seen = view.at(self.round)
        if not words_of(others_sum(seen, self.round, payload=True)).any():
            return NotApplicable(reason="every value is rounded to 0, or kept back")
        return self.attack.run(seen)


def _federation(case: Case) -> Federation[Any]:
    config = config_of(case)
    return build_federation(config, _dataset(Case(case.data, biases=case.biases)).task(0))


@cache
def _dataset(case: Case) -> Dataset:
    """The data, and the algorithm that learns from them."""
    return load_dataset(config_of(case), None)


def _trained(federation: Federation[Any], run: RecordedRun, *, plain: bool) -> Mapping[str, float]:
    """Train from the second round to the end; how good the model is then.

    Args:
        federation: what is trained.
        run: its recording.
        plain: rounds that are not attacked are summed without masks, to the same bits.
    """
    rounds = federation.config.algorithm.rounds
    if plain:
        stack = stack_of(
            replace(federation.config, protection={}), federation.sizes(), federation.streams
        )
        quick = federation.engine(federation.fresh(), stack=stack)
        quick.restore(run.engine.state())
        while quick.public.round < rounds - 1:
            quick.run_round()
        run.engine.restore(quick.state())
    while run.completed < rounds:
        run.run_round()
    evaluate_, engine = federation.fresh().problem.evaluate, run.engine
    return (evaluate_ and evaluate_(engine.public, engine.vault)) or {}


def measured(names: Collection[str], results: Path | None = RESULTS) -> Found:
    """Every federation on the data sets named; those in a file as they are, the others into it."""
    found = read(results) if results is not None and results.exists() else {}
    for case in tqdm([case for case in cases(names) if case not in found]):
        found[case] = measure(case)
        if results is not None:
            lines = [[*map(str, case), *map(str, row)] for row in found[case]]
            head = [] if results.exists() else [[*Case._fields, *Row._fields]]
            with results.open("a", newline="", encoding="utf-8") as file:
                csv.writer(file, lineterminator="\n").writerows(head + lines)
    return found


def read(results: Path) -> Found:
    """What a file holds."""
    found: Found = {}
    with results.open(newline="", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            case, row = _typed(Case, line), _typed(Row, line)
            found.setdefault(case, []).append(row)
    return found


def _typed(kind: type[T], line: Mapping[str, str]) -> T:
    """A row of named columns as what its fields are."""
    types = get_type_hints(kind)
    told = {name: types[name](line[name]) for name in types if types[name] is not bool}
    told |= {name: line[name] == "True" for name in types if types[name] is bool}
    return kind(**told)


def table(found: Found) -> list[str]:
    """Rows of the page's table: of three figures, those of the three attacks."""
    return ["| " + " | ".join(_HEAD) + " |", "|" + "---|" * len(_HEAD), *map(_line, found.items())]


_HEAD = (
    "data",
    "changed",
    "bits of a row",
    "rows kept back",
    "clients exposed",
    "vectors",
    "interactions",
    "largest profile",
    "largest sum",
    "RMSE",
    "exact",
)
_ATTACKS = ((False, "nothing"), (False, "seed"), (True, "nothing"))
"""Whether in the last round, and what is known."""


def _line(told: tuple[Case, list[Row]]) -> str:
    case, rows = told
    by_attack, first = _by_attack(rows), rows[0]

    def each(show: Callable[[Row], str]) -> str:
        shown = [show(by_attack[key]) if key in by_attack else "" for key in _ATTACKS]
        return " / ".join(text or "–" for text in shown)

    judged = case.data == JUDGED
    cells = [
        case.data,
        changed(case),
        each(lambda row: "" if row.reason else f"{row.bits:.0f}"),
        f"{first.kept_back:.0%}",
        each(lambda row: f"{row.exposed}") + f" of {first.clients}",
        each(lambda row: f"{row.vectors}" if row.knows == "nothing" else ""),
        each(lambda row: f"{row.share:.1%}"),
        each(lambda row: f"{row.profile:.0%}"),
        each(lambda row: "" if row.reason else f"{row.explained} ({row.reach})"),
        ("diverges" if math.isnan(first.utility) else f"{first.utility:.4f}") if judged else "",
        "yes" if first.lossless else "no",
    ]
    return "| " + " | ".join(cells) + " |"


def changed(case: Case) -> str:
    """What a federation has that the first does not."""
    parts = [
        f"floor {case.floor}" if case.floor else "",
        f"{case.digits} digits" if case.digits != EXACT else "",
        f"noise, epsilon {case.epsilon:g}" if case.epsilon else "",
        "biases alone" if case.biases else "",
    ]
    return ", ".join(filter(None, parts)) or f"nothing: no floor, {EXACT} digits"


def section(found: Found) -> list[str]:
    """The page's section: what was measured, picture, table and what follows from them."""
    return [*_filled(_MEASURED), "", _PICTURE, "", *table(found), "", *_filled(sentences(found))]


def write(found: Found, page: Path) -> None:
    """Put the section into the page, in place of the one that is there."""
    before, _, rest = page.read_text(encoding="utf-8").partition(_BEGIN)
    _, _, after = rest.partition(_END)
    text = "\n".join(section(found))
    page.write_text(f"{before}{_BEGIN}\n\n{text}\n\n{_END}{after}", encoding="utf-8")


_BEGIN = "<!-- written by docs/sum_decoding_curve.py -->"
_END = "<!-- end of what is written -->"


def sentences(found: Found) -> str:
    """What the table says, with its numbers."""

    def rows(part: Sequence[Case], *, last: bool = False, knows: str = "nothing") -> list[Row]:
        key = (last, knows)
        return [_by_attack(found[case])[key] for case in part]

    def exposed(part: Sequence[Case], **attack: Any) -> str:
        return _listed(row.exposed for row in rows(part, **attack))

    def floors(data: str) -> list[Case]:
        return [Case(data, floor=floor) for floor in FLOORS[1:]]

    def rings(data: str, most: int = EXACT) -> list[Case]:
        return [Case(data, digits=digits) for digits in digits_of(data) if digits <= most]

    sparse, dense, made = "lastfm-2k", JUDGED, "generated"
    open_, whole, bare = (rows([Case(data)])[0] for data in (sparse, dense, made))
    five = {data: rows([Case(data, floor=5)])[0] for data in (sparse, dense)}
    (ten,) = rows([Case(sparse, floor=10)])
    noised = rows([Case(dense, epsilon=epsilon, biases=True) for epsilon in EPSILONS])
    errors = [row.utility for row in rows(rings(dense))]
    return f"""
**A floor raises the bar.** Without one, a server that knows nothing reads something of
{open_.exposed} of {open_.clients} clients of lastfm-2k for certain, and of {whole.exposed} of
{whole.clients} of ml-100k; with floors of {_listed(FLOORS[1:])} of {exposed(floors(sparse))}, and
of {exposed(floors(dense))}. It hides none of them: where the first vectors are known, these floors
leave {exposed(floors(sparse), knows="seed")} of lastfm-2k, and
{exposed(floors(made), knows="seed")} of {bare.clients} of the generated federation. What ends
there is the search, of 2^25 sums, not what there is to find: with a floor of 10 rows still hold
{ten.bits:.0f} bits. **Its price**: a floor of 5 keeps {five[sparse].kept_back:.0%} of the items of
lastfm-2k and {five[dense].kept_back:.0%} of those of ml-100k out of training, sums are no longer
exact, and RMSE goes from {whole.utility:.4f} to {five[dense].utility:.4f}.

**A coarser ring ends the search where rows lack bits**, which is other in every round. Who knows
the vectors of the first reads something of {exposed(rings(made), knows="seed")} clients of the
generated federation with {_listed(digits_of(made))} digits, and of
{exposed(rings(sparse), knows="seed")} of lastfm-2k with {_listed(digits_of(sparse))}. The last
round, when vectors are longer, tells who knows nothing of {exposed(rings(sparse), last=True)}
clients of lastfm-2k, and with {SHORT} digits and fewer of
{exposed(rings(dense, SHORT), last=True)} of ml-100k. **Its price** is small until training fails:
RMSE {_listed(f"{error:.4f}" for error in errors)}. Sums stay exact. But nothing is claimed for it:
what is not certain may be likely, and rounds, each of which is rounded anew, hold more bits
together than the one that is read.

**Noise hides.** No sum is an equation any more, and what all rounds tell together is bounded.
Models of few parameters bear it: item biases alone end at RMSE
{_listed(f"{row.utility:.4f}" for row in noised)} with epsilon
{_listed(f"{epsilon:g}" for epsilon in EPSILONS)}; under the same noise the factorization diverges.
"""


def _by_attack(rows: Sequence[Row]) -> dict[tuple[bool, str], Row]:
    """By whether it is in a later round than the first, and what is known."""
    return {(row.round > 1, row.knows): row for row in rows}


def _listed(words: Iterable[object]) -> str:
    *others, last = map(str, words)
    return f"{', '.join(others)} and {last}" if others else last


def _filled(text: str) -> list[str]:
    """Paragraphs, a line of the page at a time."""
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += [*textwrap.wrap(" ".join(paragraph.split()), 100, break_on_hyphens=False), ""]
    return lines[:-1]


_MEASURED = f"""
`python -m docs.sum_decoding_curve` measures it, into `docs/sum-decoding.csv`: matrix
factorization of rank 20 under masks, the settings of the preset `masking-ml100k` but for {LAST}
rounds, on ml-100k, on {_LASTFM["sample_clients"]} clients of lastfm-2k and on a generated
sparse federation ({_SPARSE["clients"]} clients, {_SPARSE["items"]} items,
{_SPARSE["mean_ratings"]:g} ratings of a client on average). A server reads the payloads of
*one* round: of the first knowing nothing / of the first knowing the first private vectors,
which follow from the seed of a simulation (on ml-100k the search was given up after minutes) /
of the last knowing nothing (not tried with a floor, nor with more than {SHORT} digits on
ml-100k, where it was given up as well; on the generated data training diverges before, where
rows are not all 0). "Largest sum" is the number of raters of the largest one that is explained,
in brackets of the largest that bits and budget reach; "bits of a row" are those above a bound
of its rounding, counted cautiously. RMSE is that on ml-100k after the last round; on lastfm-2k
no model of this rank beats a trivial rule. Nothing that the attack called certain was false.
"""
_PICTURE = "![Clients exposed by floor and by digits of the ring](../sum-decoding.svg)"


def draw(found: Found) -> None:
    """Share of the clients exposed, by floor and by digits of the ring."""
    figure = Figure(figsize=(9.6, 4.4), layout="constrained")
    floors, rings = figure.subplots(1, 2, sharey=True)
    names = dict.fromkeys(case.data for case in found)
    for name, color in zip(names, ("#0072b2", "#d55e00", "#009e73"), strict=False):
        _draw_panel(floors, found, [Case(name, floor=floor) for floor in FLOORS], color)
        _draw_panel(rings, found, [Case(name, digits=digits) for digits in DIGITS], color)
    floors.set(title="tail floor", xlabel="fewest raters of a sum", ylabel="clients exposed, %")
    rings.set(title="ring", xlabel="binary digits after the point")
    _name_ticks(floors, found, [Case(JUDGED, floor=floor) for floor in FLOORS], FLOORS)
    _name_ticks(rings, found, [Case(JUDGED, digits=digits) for digits in DIGITS], DIGITS)
    rings.legend(fontsize="small")
    figure.suptitle("What sum-decoding reads for certain in one round", x=0.01, ha="left")
    figure.savefig(OUTPUT, metadata={"Date": None})


_STYLES = (
    ("o-", "round 1, nothing known"),
    ("s--", "round 1, the seed known"),
    ("^:", "last round, nothing known"),
)


def _draw_panel(axes: Axes, found: Found, part: Sequence[Case], color: str) -> None:
    for (late, knows), (style, label) in zip(_ATTACKS, _STYLES, strict=True):
        places, shares = [], []
        for place, case in enumerate(part):
            if row := _by_attack(found.get(case, ())).get((late, knows)):
                places.append(place)
                shares.append(100 * row.exposed / row.clients)
        if len(places) > 1:
            axes.plot(places, shares, style, color=color, label=f"{part[0].data}, {label}")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)


def _name_ticks(axes: Axes, found: Found, part: Sequence[Case], values: Sequence[int]) -> None:
    """What is on the axis, and what it costs where that is known."""
    errors = [found[case][0].utility if case in found else math.nan for case in part]
    labels = [
        f"{value}" if math.isnan(error) else f"{value}\nRMSE\n{error:.4f}"
        for value, error in zip(values, errors, strict=True)
    ]
    axes.set_xticks(range(len(values)), labels)


def main() -> None:
    """Measure what is not measured yet; draw, and write the page's section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="*", metavar="DATA", help=f"of {', '.join(DATA)}; all")
    parser.add_argument("--quick", action="store_true", help="a small generated federation alone")
    given = parser.parse_args()
    if given.quick:
        print("\n".join(table(measured(QUICK, results=None))))
        return
    found = measured(given.data or DATA)
    if any(case not in found for case in cases(DATA)):
        print("\n".join(table(found)))
        return
    draw(found)
    write(found, PAGE)


if __name__ == "__main__":
    main()
