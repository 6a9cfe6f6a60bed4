"""Where sent rows differ from plain uploads, or from the record of the layers."""

from collections.abc import Iterable

import numpy as np

from secure_fedrec.core.arrays import IntArray
from secure_fedrec.properties.lossless.comparison import Scope
from secure_fedrec.properties.lossless.differences import off_by
from secure_fedrec.properties.lossless.plain_run import Rows
from secure_fedrec.traits import Traits


def other_clients(taking: IntArray, due: IntArray) -> str | None:
    """Whether the clients that take part are those that must.

    Args:
        taking: int64[P], clients in the order in which they came.
        due: int64[Q], clients that must take part.
    """
    absent = np.setdiff1d(due, taking)
    if len(absent):
        return (
            f"{len(absent)} of {len(due)} clients that must take part do not, the first is client "
            f"{int(absent[0])}"
        )
    strangers = np.setdiff1d(taking, due)
    if len(strangers):
        return f"client {int(strangers[0])} takes part, but must not"
    if len(taking) != len(due):
        clients, times = np.unique(taking, return_counts=True)
        twice = int(clients[np.argmax(times)])
        return f"{len(taking)} uploads of {len(due)} clients, client {twice} comes twice"
    return None


def all_exempt(taking: IntArray, exempt: Iterable[int]) -> str | None:
    """Whether a cloak covers no client, so that it is not tested."""
    if not len(taking) or len(np.setdiff1d(taking, list(exempt))):
        return None
    return f"all {len(taking)} clients are exempt from the cloak: it is not tested"


def foreign_row(real: Rows, plain: Rows, n_rows: int) -> str | None:
    """The first row that is marked as real but is not in the plain upload."""
    foreign = real.pick(~np.isin(real.keys(n_rows), plain.keys(n_rows)))
    if not len(foreign):
        return None
    return f"{_place(foreign, 0)} is not in the plain upload, and not marked as virtual"


def silent_row(silent: Rows, exempt: Iterable[int], scope: Scope) -> str | None:
    """The first row that must be sent but is not.

    Args:
        silent: rows of plain uploads that are not sent for real.
        exempt: clients that no cloak covers.
        scope: what may be left out.
    """
    if len(silent) and not scope.drops_reports:
        place = _place(silent, 0)
        return f"{place} is not sent, so it is at most lossless relative to what it reports"
    silent = silent.pick(np.isin(silent.clients, list(exempt)))
    if len(silent):
        return f"{_place(silent, 0)} is not sent, though the client is exempt from the cloak"
    return None


def virtual_rows_wrong(fakes: Rows, silent: Rows, exempt: Iterable[int], n_rows: int) -> str | None:
    """The first row that is marked as virtual but must not be.

    Args:
        fakes: rows that are marked as virtual.
        silent: rows of plain uploads that are not sent for real.
        exempt: clients that no cloak covers.
        n_rows: rows of the shared table.
    """
    covered = fakes.pick(np.isin(fakes.clients, list(exempt)))
    if len(covered):
        return f"{_place(covered, 0)} is virtual, though the client is exempt from the cloak"
    called = silent.pick(np.isin(silent.keys(n_rows), fakes.keys(n_rows)))
    if len(called):
        return f"{_place(called, 0)} is marked as virtual, but is in the plain upload"
    return None


def values_differ(sent: Rows, due: Rows) -> str | None:
    """The first value or count that is not that of the same row of the plain upload."""
    differs = _first_difference(sent.values, due.values, due, ", factor {}", "ring units")
    return differs or _first_difference(sent.counts[:, None], due.counts[:, None], due, ": count")


def unlike_record(
    traits: Traits | None, *, covered: IntArray, exempt: Iterable[int], virtual: int, silent: int
) -> str | None:
    """A fact of a round that contradicts the traits in the record of the layers, if any.

    Args:
        traits: traits of the stack.
        covered: int64[P], clients that went through a cloak; empty without one.
        exempt: those of them that the cloak was told not to cover.
        virtual: rows that their clients marked as virtual.
        silent: rows of plain uploads that were not sent.
    """
    if traits is None:
        return None
    if virtual and traits.virtual_rows == "none":
        return f"{virtual} rows are virtual, but the record states that none are"
    if silent and traits.reports == "all":
        return f"{silent} rows are not sent, but the record states that all are"
    # Rows of a denoiser reach the server only inside the sum of its group.
    spares = traits.denoisers if traits.denoising == "groups" else None
    spared = np.intersect1d(covered, list(spares or ()))
    for clients, words in (
        (
            np.setdiff1d(list(exempt), spared),
            "exempt from the cloak, but not a denoiser of the record",
        ),
        (
            np.setdiff1d(spared, list(exempt)),
            "a denoiser of the record, but not exempt from the cloak",
        ),
    ):
        if len(clients):
            return f"client {int(clients[0])} is {words}"
    return None


def _first_difference(
    sent: IntArray, due: IntArray, rows: Rows, what: str, unit: str = ""
) -> str | None:
    if sent.shape != due.shape:
        return f"rows of shape {sent.shape} instead of {due.shape}"
    different = np.argwhere(sent != due)
    if not len(different):
        return None
    row, column = different[0].tolist()
    off = off_by(sent[row, column], due[row, column], unit)
    return f"{_place(rows, row)}{what.format(column)}: {off}"


def _place(rows: Rows, at: int) -> str:
    return f"client {int(rows.clients[at])}'s row of item {int(rows.rows[at])}"
