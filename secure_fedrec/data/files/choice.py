"""Chooses the column of a role, if several names suggest it or names mislead."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from secure_fedrec.data.files.contents import Contents
from secure_fedrec.data.files.faults import shown
from secure_fedrec.data.files.kinds import Kind, named_so, of_something_else
from secure_fedrec.data.files.settings import TextFile
from secure_fedrec.errors import DataError

_NAMED: Final = 8
"""Most columns that a question names."""


class _Fitting(NamedTuple):
    """A column that may have a role by its name and its contents.

    Attributes:
        name: its.
        level: sort key, the likeliest first: ratings before flags, constant flags last, then by
            name.
    """

    name: str
    level: tuple[bool, bool, int]


def choose(
    path: Path, file: TextFile, what: str, free: Sequence[str], columns: Mapping[str, Contents]
) -> tuple[str | None, list[str]]:
    """The column of a role, and decisions about it that a user may not expect.

    Args:
        path: the file.
        file: its settings.
        what: the role.
        free: names of the columns without another role.
        columns: the first rows, by name.

    Raises:
        DataError: several may be it and none is clearly better; or the only one is unlikely.
    """
    every = named_so(what, free)
    likely = [each for each in every if not each[1].sole]
    if every and not likely:
        name, column = every[0][0], columns[every[0][0]]
        odd = of_something_else(what, name) or column.unique or column.few
        if len(every) == 1 and not odd:
            return name, [f"column {shown(name)} as the {what}: the only other id"]
        ids = [name for name, *_ in every]
        why = f"{_may(ids)} the {what}, but not for sure"
        raise _asked(path, file, what, ids, columns, why, others=free)
    fitting = [
        _Fitting(name, (kind.implicit, kind.implicit and columns[name].constant, rank))
        for name, kind, rank in likely
        if kind.holds(columns[name], rank)
    ]
    # Seconds since 1970 are preferred to dates, whose time zone is unknown.
    dates = {each.name: what == "time" and columns[each.name].numbers is None for each in fitting}
    fitting.sort(key=lambda each: (each.level, dates[each.name]))
    said = [
        f"column {shown(name)} is not taken as the {what}: it holds "
        f"{columns[name].examples or 'nothing'}"
        for name in _before(likely, fitting)
    ]
    written = [each for each in fitting if columns[each.name].written] or fitting
    ranked = [each for each in written if what != "time" or not of_something_else(what, each.name)]
    elsewhere = [each.name for each in written if each not in ranked]
    if not ranked:
        if elsewhere:
            why = f"{'is' if len(elsewhere) == 1 else 'are'} named for another time than a rating's"
            raise _asked(path, file, what, elsewhere, columns, why)
        _require_clear(path, file, what, likely, columns)
        return None, said
    best = ranked[0]
    rivals = [each.name for each in ranked if each.level == best.level]
    if not all(_alike(what, columns[best.name], columns[name]) for name in rivals[1:]):
        why = f"may each be the {what} by name"
        raise _asked(path, file, what, rivals, columns, why)
    if beside := [each.name for each in ranked[1:]] + elsewhere:
        answers = " or ".join(file.advice(what, name) for name in beside[:_NAMED])
        said.append(f"column {shown(best.name)} as the {what} ({answers} takes another)")
    return best.name, said


def _alike(what: str, one: Contents, other: Contents) -> bool:
    """Whether it does not matter which of two columns is used."""
    if what == "time":
        return one.same_order(other)
    return what != "rating" and one.same_as(other)


def _before(likely: Sequence[tuple[str, Kind, int]], fitting: Sequence[_Fitting]) -> list[str]:
    """The misleading names before the first that does not mislead."""
    names, kept = [name for name, *_ in likely], {each.name for each in fitting}
    end = names.index(fitting[0].name) if fitting else len(names)
    return [name for name in names[:end] if name not in kept]


def _require_clear(
    path: Path,
    file: TextFile,
    what: str,
    likely: Sequence[tuple[str, Kind, int]],
    columns: Mapping[str, Contents],
) -> None:
    """Refuse a role that names suggest and contents contradict.

    Raises:
        DataError: such a role was found.
    """
    if what == "rating" and likely:
        unclear = ", ".join(f"{shown(name)} ({columns[name].examples})" for name, *_ in likely)
        problem = (
            f"may say in {unclear} which rows count, but not in numbers: write 1 and 0, or say "
            f"{file.advice('rating', 'null')} if all do"
        )
        raise DataError(path, problem, line=1)
    numbers = [name for name, _, rank in likely if rank == 0 and columns[name].whole]
    if what == "time" and numbers:
        why = "is called a time and holds other numbers than seconds since 1970"
        raise _asked(path, file, what, numbers[:1], columns, why)


def _asked(
    path: Path,
    file: TextFile,
    what: str,
    names: Sequence[str],
    columns: Mapping[str, Contents],
    why: str,
    others: Sequence[str] = (),
) -> DataError:
    """The question which column it is, to be raised; with values and the options that answer."""
    seen = " and ".join(f"{shown(name)} ({_seen(what, columns[name])})" for name in names[:_NAMED])
    answers = " or ".join(file.advice(what, name) for name in names[:_NAMED])
    problem = f"{seen} {why}: say {answers}"
    if what in ("rating", "time"):
        problem += f", or {file.advice(what, 'null')} where there is none"
    if left := [shown(name) for name in others if name not in names]:
        problem += f"; or name another, of {', '.join(left[:_NAMED])}"
    return DataError(path, problem, line=1)


def _seen(what: str, column: Contents) -> str:
    """Some values of a column; of a column of times, values that are not times."""
    return (column.odd_times if what == "time" else "") or column.examples


def _may(names: Sequence[str]) -> str:
    return "may be" if len(names) == 1 else "may each be"
