"""Positions of users in the learnt spaces (figures 4 and 5), and drawings (3 to 5).

The question is whether server and federation arrange users similarly from independent starts. Two
studies of one seed do *not* start independently. The model's values are drawn in one stream,
characters
and LSTMs before the user embedding, whose table has one row on a device and all users' on a server:
with one seed, both encoders start from the same values, and only what is drawn later differs. The
spaces that are compared therefore come from different seeds wherever the folder has such a pair: of
the same texts if there is one, else of the same users on another split. Only if there is neither,
the studies of one seed are compared, and reported to start with equal values. User vectors start at
zero unless ``user_init`` says otherwise, so what two spaces have in common was learnt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from audits.report.svg import MUTED, RULE, SERIES, canvas, finish
from audits.report.text import measure as titled
from audits.reproduction.furl.paper import PaperTask, Stored, Studies, studies_of
from audits.reproduction.projection import MARKERS, distinct, embed, panels_chart
from secure_fedrec.core.arrays import BoolArray, FloatArray
from secure_fedrec.errors import DataError
from secure_fedrec.evaluation.representations import compare_representations
from secure_fedrec.studies.furl.results import UserVectors, read_vectors

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SERVER: Final = "personalized-server"
FEDERATION: Final = "personalized-fl"


_DASHES: Final[tuple[Any, ...]] = ("-", (0, (5, 1.6)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)))
_LARGEST: Final = 5  # groups that get a colour, as in figure 5
_QUARTERS: Final = ("lowest", "second", "third", "highest")
_PANEL, _LEGEND = 2.6, 2.1


class Pair(NamedTuple):
    """Two studies whose user vectors are compared.

    Attributes:
        server: study of a server. federation: study of a federation.
        start: "independent" or "same encoder".
        texts: "same" or "another split".
    """

    server: Stored
    federation: Stored
    start: str
    texts: str


def pair_studies(task: PaperTask, studies: Studies, seeds: Sequence[int]) -> list[Pair]:
    """For every study of the federation, the study of the server that it is compared with.

    Returns:
        At most one pair per seed of the federation, in order of the seeds.
    """
    servers = studies_of(task, SERVER, studies, seeds)
    pairs = []
    for federation in studies_of(task, FEDERATION, studies, seeds):
        apart = _apart(servers, federation.place.seed)
        same = [each for each in apart if _same_texts(each, federation)]
        alike = [each for each in servers if each not in apart and _same_texts(each, federation)]
        if same:
            pairs.append(Pair(same[0], federation, "independent", "same"))
        elif apart and task.same_users:
            pairs.append(Pair(apart[0], federation, "independent", "another split"))
        elif alike:
            pairs.append(Pair(alike[0], federation, "same encoder", "same"))
    return pairs


def read_pair(pair: Pair) -> tuple[UserVectors, UserVectors, BoolArray]:
    """The user vectors of both studies, and which users were trained in both.

    Returns:
        (server, federation, bool[U]): a user who never took part has no direction to compare.

    Raises:
        DataError: an array file is missing or damaged, or the studies have different users.
    """
    server, federation = read_vectors(pair.server.path), read_vectors(pair.federation.path)
    if not np.array_equal(server.users, federation.users):
        raise DataError(pair.federation.path, f"has other users than {pair.server.path}")
    learnt: BoolArray = np.any(server.embeddings, axis=1) & np.any(federation.embeddings, axis=1)
    return server, federation, learnt


def compare_spaces(pair: Pair) -> dict[str, Any]:
    """Similarity of the two spaces as JSON values, beside its controls.

    Returns:
        ``correlation`` with its 95 % interval over users (``low``, ``high``), and the largest that
        was met with users ``permuted`` and against ``untrained`` vectors; or ``problem``, why the
        spaces cannot be compared.

    Raises:
        DataError: as for ``read_pair``.
    """
    server, federation, learnt = read_pair(pair)
    found: dict[str, Any] = {
        "federation_seed": pair.federation.place.seed,
        "server_seed": pair.server.place.seed,
        "start": pair.start,
        "texts": pair.texts,
        "users": int(learnt.sum()),
        "left_out": int((~learnt).sum()),
    }
    try:
        report = compare_representations(
            server.embeddings[learnt],
            federation.embeddings[learnt],
            seed=pair.federation.place.seed,
        )
    except ValueError as refused:
        return {**found, "problem": str(refused)}
    return {**found, **asdict(report)}


def _apart(servers: Sequence[Stored], seed: int) -> list[Stored]:
    """Studies of other seeds, beginning with the next one, cyclically."""
    others = [each for each in servers if each.place.seed != seed]
    return sorted(others, key=lambda each: (each.place.seed < seed, each.place.seed))


def _same_texts(one: Stored, other: Stored) -> bool:
    return one.texts.settings() == other.texts.settings()


class Group(NamedTuple):
    """Users that are drawn alike.

    Attributes:
        name: for the legend.
        users: bool[U], who belongs to it.
    """

    name: str
    users: BoolArray


def curves_chart(
    curves: Mapping[str, Mapping[str, Any]], names: Mapping[str, str], *, task: str, measure: str
) -> str:
    """Draw validation results by epoch: a line of means per configuration, a band of all seeds.

    Args:
        curves: as ``tables.learning_curves`` gives them.
        names: of the configurations, for the legend.
        task: for the caption.
        measure: on the vertical axis.

    Returns:
        One ``<svg>`` element.
    """
    with canvas(6.4, 3.2) as figure:
        axes = figure.add_axes((0.09, 0.14, 0.56, 0.8))
        for place, (configuration, curve) in enumerate(curves.items()):
            colour = SERIES[place % len(SERIES)]
            axes.fill_between(
                curve["epochs"], curve["low"], curve["high"], color=colour, alpha=0.18, linewidth=0
            )
            axes.plot(
                curve["epochs"],
                curve["mean"],
                color=colour,
                linestyle=_DASHES[place % len(_DASHES)],
                marker="." if len(curve["epochs"]) == 1 else None,
                linewidth=1.4,
                label=names[configuration],
            )
        axes.set_xlabel("epoch")
        axes.set_ylabel(f"{titled(measure)} in validation")
        axes.grid(axis="y", color=RULE, linewidth=0.6)
        if curves:
            figure.legend(loc="upper left", bbox_to_anchor=(0.67, 0.94), frameon=False)
        figure.text(0.67, 0.14, f"{task}; bands span the seeds", color=MUTED)
        told = "; ".join(
            f"{names[each]} ends at {curve['mean'][-1]:.3f} after {curve['epochs'][-1]} epochs"
            for each, curve in curves.items()
        )
        return finish(figure, "curves", f"{titled(measure)} in validation on {task}", told)


def pair_chart(pair: Pair, names: Mapping[str, str], task: PaperTask) -> str:
    """Draw the spaces of a pair beside each other: one ``<svg>`` element."""
    server, federation, learnt = read_pair(pair)
    spaces = {
        f"{names[study.place.configuration]}, seed {study.place.seed}": vectors.embeddings[learnt]
        for study, vectors in ((pair.server, server), (pair.federation, federation))
    }
    groups = [Group(name, users[learnt]) for name, users in groups_of(federation, task.classes)]
    return spaces_chart(spaces, groups, task=task.name)


def groups_of(vectors: UserVectors, classes: Sequence[str]) -> list[Group]:
    """How users are told apart in the figure.

    With two classes, as in figure 4, by quarters of their share of the second; with more, as in
    figure 5, by the most frequent class, with names for the largest groups. If files do not hold
    shares, users are grouped by the most frequent class.

    Args:
        vectors: of U users.
        classes: their names; numbers where a name is missing.
    """
    counts = vectors.label_counts
    if counts is not None and counts.shape[1] == 2:
        share = counts[:, 1] / counts.sum(1)
        quarter = np.searchsorted(np.quantile(share, [0.25, 0.5, 0.75]), share, side="left")
        return [
            Group(f"{name} quarter of {_name(classes, 1)}s", quarter == place)
            for place, name in enumerate(_QUARTERS)
        ]
    labels, sizes = np.unique(vectors.majority, return_counts=True)
    largest = labels[np.argsort(-sizes, kind="stable")][:_LARGEST]
    found = [Group(_name(classes, int(label)), vectors.majority == label) for label in largest]
    rest: BoolArray = ~np.isin(vectors.majority, largest)
    return [*found, Group("others", rest)] if rest.any() else found


def spaces_chart(spaces: Mapping[str, FloatArray], groups: Sequence[Group], *, task: str) -> str:
    """Draw the users' vectors in the plane, one panel per space.

    Each panel is a separate embedding: distances within it are meaningful, its axes are not.

    Args:
        spaces: by name, float64[U, d].
        groups: users that are drawn alike; users without a group are left out.
        task: for the caption.

    Returns:
        One ``<svg>`` element.
    """

    def draw(axes: "Axes", name: str) -> None:
        plane = embed(spaces[name], seed=0)
        for place, group in enumerate(groups):
            rest = place >= _LARGEST
            across, up = plane[group.users].T
            axes.scatter(
                across,
                up,
                s=5,
                color=RULE if rest else SERIES[place],
                marker="." if rest else MARKERS[place],
                linewidths=0,
                label=group.name,
                zorder=1 if rest else 2,
            )

    told = f"Users of {task}, one point each, in {' and '.join(spaces)}: " + ", ".join(
        f"{group.name} {int(group.users.sum())}" for group in groups
    )
    return panels_chart(
        {name: distinct(vectors) for name, vectors in spaces.items()},
        draw,
        side=_PANEL,
        legend=_LEGEND,
        caption=f"{task}: t-SNE of user vectors",
        named=("spaces", "User vectors by t-SNE", told),
    )


def _name(classes: Sequence[str], label: int) -> str:
    return classes[label] if label < len(classes) else f"class {label}"
