"""A reproduction of FURL as text, and what a reader must know about the studies behind it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from audits.report.text import measure as titled
from audits.report.text import signed
from audits.reproduction.columns import with_interval
from audits.reproduction.furl.paper import PaperTask
from audits.reproduction.furl.studies import Needed, Stored, Studies, differences
from audits.reproduction.furl.tables import MIXED, POINTS

_NAME, _PAPER, _CELL = 42, 8, 26
_HEADS = {"best": "ours, chosen epoch", "last": "ours, last epoch"}
_STARTS = {
    "independent": "independent starts",
    "same encoder": "NOT INDEPENDENT: one seed, so both encoders start alike",
}
_TEXTS = {"same": "same texts", "another split": "another split of the same users' texts"}


def as_lines(task: Mapping[str, Any]) -> list[str]:
    """A reproduced task as text: table, gains, similarity, notes.

    Args:
        task: as ``furl.command`` puts it together.
    """
    seeds = ", ".join(map(str, task["seeds"]))
    return [
        f"Table {task['table']} on {task['task']}; means over seed {seeds} [95 % interval]",
        f"  paper: {task['paper_data']}",
        f"  ours:  {task['our_data']}",
        f"  seeds differ in {task['between_seeds']}; the chosen epoch is the best in validation",
        *(line for measure in task["measures"] for line in ["", *_measure_lines(task, measure)]),
        "",
        *_similarity_lines(task["similarity"]),
        *(f"note: {note}" for note in task["notes"]),
    ]


def notes_on(task: PaperTask, needed: Sequence[Needed], studies: Studies) -> list[str]:
    """What is not as the paper's file pins it: other settings, copies, missing studies.

    Args:
        task: the task.
        needed: studies of the task that the table wants.
        studies: those that there are.
    """
    notes = []
    for configuration in dict.fromkeys(each.configuration for each in needed):
        places = [each for each in needed if each.configuration == configuration]
        own = [studies[each] for each in places if each in studies]
        notes += _settings_notes(task, own)
        missing = [str(each.seed) for each in places if each not in studies]
        if missing:
            notes.append(f"{configuration}: not run for seed {', '.join(missing)}")
        notes += [
            f"{copy.name} repeats {stored.path.name} and is not used"
            for stored in own
            for copy in stored.copies
        ]
    return notes


def _settings_notes(task: PaperTask, studies: Sequence[Stored]) -> list[str]:
    """One note per way in which studies of a configuration differ from their pinned settings."""
    ways: dict[str, list[Stored]] = defaultdict(list)
    for study in studies:
        found = differences(study, task)
        told = [f"{name} = {own!r} (pinned: {pinned!r})" for name, (own, pinned) in found.items()]
        ways["; ".join(told)].append(study)
    notes = [
        f"{', '.join(study.path.name for study in alike)}: other settings than pinned: {way}"
        for way, alike in ways.items()
        if way
    ]
    shared = [{**study.settings(), "texts.seed": None} for study in studies]
    if any(settings != shared[0] for settings in shared):
        configuration = studies[0].place.configuration
        notes.append(f"{configuration}: THE MEAN JOINS STUDIES OF DIFFERENT SETTINGS")
    return notes


def _measure_lines(task: Mapping[str, Any], measure: str) -> list[str]:
    """Rows of one measure in per cent, then the gains in points."""
    heads = "".join(f"{_HEADS[point]:>{_CELL}}" for point in POINTS)
    lines = [f"{_named(measure) + ', %':{_NAME}}{'paper':>{_PAPER}}{heads}"]
    for row in task["rows"]:
        found = row["measures"][measure]
        paper = "-" if found["paper"] is None else f"{100 * found['paper']:.2f}"
        cells = "".join(f"{_share(found[point]):>{_CELL}}" for point in POINTS)
        lines.append(f"{row['name']:{_NAME}}{paper:>{_PAPER}}{cells}")
    if _named(measure).startswith("AUC"):
        lines.append("  (a majority class is no score and has no AUC; see the user-only row)")
    lines.append("  differences in points")
    for gain in task["gains"]:
        found = gain["measures"][measure]
        paper = "-" if found["paper"] is None else signed(found["paper"], 2)
        cells = "".join(f"{_points(found[point]):>{_CELL}}" for point in POINTS)
        pair = f"  {gain['one']} - {gain['other']}"
        lines.append(f"{pair:{_NAME}}{paper:>{_PAPER}}{cells}  {gain['says']}")
    return lines


def _similarity_lines(similarity: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = ["user spaces of Personalized Server and Personalized FL, correlation [95 % interval]"]
    if not similarity:
        return [*lines, "  no two studies of the same users to compare"]
    for each in similarity:
        who = f"  FL seed {each['federation_seed']}, server seed {each['server_seed']}"
        if "problem" in each:
            lines.append(f"{who}: not measured ({each['problem']})")
            continue
        lines.append(
            f"{who}: {each['correlation']:.3f} [{each['low']:.3f}, {each['high']:.3f}]; largest of "
            f"controls: users permuted {each['permuted']:.3f}, untrained {each['untrained']:.3f}"
        )
        left_out = f", {each['left_out']} never trained" if each["left_out"] else ""
        origin = f"{_STARTS[each['start']]}, {_TEXTS[each['texts']]}"
        lines.append(f"    ({origin}, {each['users']} users{left_out})")
    return lines


def _named(measure: str) -> str:
    name, mixed, _ = measure.partition(MIXED)
    return f"{titled(name)} on users of several classes" if mixed else titled(name)


def _share(found: Mapping[str, Any] | None) -> str:
    if found is None:
        return "-"
    span = "" if found["low"] is None else f" [{100 * found['low']:.2f}, {100 * found['high']:.2f}]"
    return f"{100 * found['mean']:.2f}{span}"


def _points(found: Mapping[str, Any] | None) -> str:
    return "-" if found is None else with_interval(found, 2)
