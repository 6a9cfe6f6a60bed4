"""What was chosen in validation: settings and round of every study in the tables."""

from collections.abc import Mapping, Sequence
from typing import Any

from audits.reproduction.hpfl.paper import PaperTable
from audits.reproduction.hpfl.studies import Studies, needed_study


def chosen_settings(
    tables: Sequence[PaperTable], studies: Studies, seeds: Sequence[int], start: str
) -> list[dict[str, Any]]:
    """The settings that were chosen under a start, as JSON values: one entry per data and method.

    ``edges`` counts the studies whose learning rate is the smallest or the largest that was tried:
    a wider grid might have done better.

    Args:
        tables: say which data and methods.
        studies: those that there are.
        seeds: of the repetitions.
        start: of training.
    """
    methods = dict.fromkeys((table.data, method) for table in tables for method in table.rows)
    found = []
    for data, method in methods:
        places = {seed: needed_study(data, method, seed, start) for seed in seeds}
        chosen = [
            _chosen(studies[place].report, seed)
            for seed, place in places.items()
            if place in studies
        ]
        if chosen:
            edges = {edge: sum(each["edge"] == edge for each in chosen) for edge in _EDGES}
            found.append(
                {"data": data, "method": method, "start": start, "edges": edges, "chosen": chosen}
            )
    return found


_EDGES = ("smallest", "largest")


def tuning_as_lines(tuning: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same as text."""
    lines = []
    for each in tuning:
        chosen = each["chosen"]
        rounds = ", ".join(dict.fromkeys(str(one["rounds"]) for one in chosen))
        told = "; ".join(
            f"{one['learning_rate']:g} x {one['epochs']} ({one['round']})" for one in chosen
        )
        edges = ", ".join(
            f"{edge} rate {count} of {len(chosen)}"
            for edge, count in each["edges"].items()
            if count
        )
        lines.append(
            f"{each['data']}, {each['start']}, {each['method']}, {rounds} rounds: {told}"
            + (f"; {edges}" if edges else "")
        )
    return lines and ["Chosen in validation, by seed: learning rate x epochs (round)", *lines]


def _chosen(report: Mapping[str, Any], seed: int) -> dict[str, Any]:
    settings = {trial["place"]: trial["setting"] for trial in report["trials"]}
    own = settings[report["chosen"]]
    rates = sorted({setting["learning_rate"] for setting in settings.values()})
    edge = None
    if len(rates) > 1 and own["learning_rate"] in (rates[0], rates[-1]):
        edge = _EDGES[own["learning_rate"] == rates[-1]]
    names = ("learning_rate", "epochs", "rounds", "proximal")
    return {
        "seed": seed,
        **{name: own[name] for name in names},
        "round": report["round"],
        "edge": edge,
    }
