"""Whether server and federation arrange the users alike, having started apart (figures 4 and 5).

Two studies of one seed do *not* start apart. The model's values are drawn in one stream, characters
and LSTMs before the user embedding, whose table has one row on a device and all users' on a server:
with one seed, both encoders start from the same values, and only what is drawn later differs. The
spaces that are compared therefore come from different seeds wherever the folder has such a pair: of
the same texts if there is one, else of the same users on another split. Only where neither is found
are the studies of one seed compared, and said to start alike. User vectors start at zero unless
``user_init`` says otherwise: what two spaces share, they have learnt.
"""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

import numpy as np

from audits.reproduction.furl.paper import PaperTask
from audits.reproduction.furl.studies import Stored, Studies, studies_of
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.errors import DataError
from secure_fedrec.evaluation.representations import compare_representations
from secure_fedrec.studies.furl.results import UserVectors, read_vectors

SERVER: Final = "personalized-server"
FEDERATION: Final = "personalized-fl"


class Pair(NamedTuple):
    """Two studies whose user vectors are compared.

    Attributes:
        server: the one.
        federation: the other.
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
    """What the two studies learnt of their users, and who has learnt in both.

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
    """Those of other seeds, the next one first and round to the beginning: all serve in turn."""
    others = [each for each in servers if each.place.seed != seed]
    return sorted(others, key=lambda each: (each.place.seed < seed, each.place.seed))


def _same_texts(one: Stored, other: Stored) -> bool:
    return one.texts.settings() == other.texts.settings()
