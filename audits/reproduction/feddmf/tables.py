"""FedDMF's figures in numbers: F1 at the tuned and at the printed threshold, AUC, and all ones."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from audits.reproduction.columns import in_columns, number, with_interval
from audits.reproduction.feddmf.paper import Paper, Point
from audits.reproduction.feddmf.studies import Studies
from audits.reproduction.seeds import t_interval
from secure_fedrec.studies.feddmf.methods import UNTRAINED
from secure_fedrec.studies.feddmf.quality import KINDS
from secure_fedrec.studies.feddmf.study import StudyConfig

SIDES: Final = ("within", "across")
"""An organisation's own items, on which it trained; and those of others."""

_FIGURES: Final = ("tuned", "printed", "best", "auc", "all_ones")
_EXCHANGED, _SUMMED = "feddmf-exchanged", "feddmf-summed"
_OTHERS: Final = ("dmf", "fedavg", "popularity")
_SHARES: Final = {"share_of_central": "", "popularity_share": " by popularity"}


def figure_values(
    paper: Paper, figure: str, studies: Studies, points: Mapping[StudyConfig, Point]
) -> dict[str, Any]:
    """A figure as JSON values: by point, kind of pairs and side, the mean over seeds.

    Args:
        paper: says what it shows.
        figure: its number or name.
        studies: those that there are.
        points: of its studies.
    """
    own: dict[Point, dict[int, Mapping[str, Any]]] = defaultdict(dict)
    for study, point in points.items():
        if study in studies:
            own[point][study.split.seed] = studies[study]["epochs"][-1]
    shown = paper.figures[figure]
    return {
        "figure": figure,
        "title": shown.title,
        "varied": shown.varied,
        "missing": sum(study not in studies for study in points),
        "points": [_point(point, found) for point, found in own.items()],
        "against": _against(paper, own, shown.varied),
    }


def figure_lines(values: Mapping[str, Any]) -> list[str]:
    """A figure as text."""
    header = ["F1 across, sampled", "at 0.5", "AUC", "all ones", "F1 within", "AUC", "F1 all pairs"]
    rows = [[_label(point, values["varied"]), *_cells(point)] for point in values["points"]]
    missing = f"; {values['missing']} studies are missing" if values["missing"] else ""
    lines = [
        f"Figure {values['figure']}. {values['title']}; last epoch, common items left out{missing}",
        *in_columns(["", *header, "seeds"], rows),
    ]
    for each in values["against"]:
        gaps = [f"{other} {with_interval(gap, 4)}" for other, gap in each["less"].items()]
        lines.append(f"{each['method']}, F1 across, sampled, less that of: {'; '.join(gaps)}")
        shares = [
            f"{', '.join(f'{share:.1%} on {kind}' for kind, share in each[key].items())}{whose}"
            for key, whose in _SHARES.items()
            if each[key]
        ]
        if shares:
            lines.append(f"  of DMF on all data: {'; '.join(shares)}; paper: {each['printed']:.0%}")
    return lines


def _point(point: Point, found: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds, of the mean over organisations and of each organisation."""
    ordered = [found[seed] for seed in sorted(found)]
    count = len(ordered[0][KINDS[0]]["organisations"])
    figures = {
        kind: {
            side: {
                name: t_interval([each[kind][side][name] for each in ordered]) for name in _FIGURES
            }
            for side in SIDES
        }
        for kind in KINDS
    }
    organisations = [
        {
            side: t_interval(
                [each[KINDS[0]]["organisations"][place][side]["tuned"] for each in ordered]
            )
            for side in SIDES
        }
        for place in range(count)
    ]
    return {
        "method": point.name,
        "at": point.at,
        "seeds": sorted(found),
        "figures": figures,
        "organisations": organisations,
    }


def _against(
    paper: Paper, own: Mapping[Point, Mapping[int, Mapping[str, Any]]], varied: str | None
) -> list[dict[str, Any]]:
    """Every model against others and popularity on the same splits, seeds paired.

    The summed form of FedDMF stands against the exchanged one too.
    """
    rows = []
    rules = {paper.names[each] for each in UNTRAINED}
    for point, found in own.items():
        if point.name in rules:
            continue
        others = [paper.names[each] for each in _OTHERS if paper.names[each] != point.name]
        if point.name.startswith(paper.names[_SUMMED]):
            forms = paper.names[_SUMMED], paper.names[_EXCHANGED]
            others.append(point.name.replace(*forms))
        known = {other: own.get(Point(other, point.at), {}) for other in others}
        less = {other: _paired(found, theirs) for other, theirs in known.items()}
        told = {other: gap for other, gap in less.items() if gap is not None}
        if told:
            row = {"method": _label({"method": point.name, "at": point.at}, varied), "less": told}
            central = known.get(paper.names["dmf"], {})
            shares = {
                "share_of_central": _shares(found, central),
                "popularity_share": _shares(known[paper.names["popularity"]], central),
            }
            rows.append({**row, **shares, "printed": paper.share_of_central})
    return rows


def _paired(
    found: Mapping[int, Mapping[str, Any]], other: Mapping[int, Mapping[str, Any]]
) -> dict[str, float | None] | None:
    """F1 across less another's, of the seeds that both have."""
    seeds = sorted(found.keys() & other.keys())
    if not seeds:
        return None
    return t_interval([_across(found[seed]) - _across(other[seed]) for seed in seeds])


def _shares(
    found: Mapping[int, Mapping[str, Any]], central: Mapping[int, Mapping[str, Any]]
) -> dict[str, float]:
    """F1 across in shares of that of a model on all data, of the seeds that both have, by pairs."""
    seeds, shares = sorted(found.keys() & central.keys()), {}
    for kind in KINDS:
        ours, whole = (sum(_across(each[s], kind) for s in seeds) for each in (found, central))
        if whole:
            shares[f"{kind} pairs"] = ours / whole
    return shares


def _across(epoch: Mapping[str, Any], kind: str = KINDS[0]) -> float:
    return float(epoch[kind]["across"]["tuned"])


def _label(point: Mapping[str, Any], varied: str | None) -> str:
    return point["method"] if varied is None else f"{point['method']}, {varied} {point['at']:g}"


def _cells(point: Mapping[str, Any]) -> Sequence[str]:
    across, within = (point["figures"][KINDS[0]][side] for side in ("across", "within"))
    everything = point["figures"][KINDS[1]]["across"]
    shown = [across[name] for name in ("tuned", "printed", "auc", "all_ones")]
    shown += [within["tuned"], within["auc"], everything["tuned"]]
    return [*(number(each["mean"], 4) for each in shown), str(len(point["seeds"]))]
