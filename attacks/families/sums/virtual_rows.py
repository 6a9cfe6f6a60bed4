"""Private vectors from virtual rows: what a denoiser reads in each message that it collects."""

from itertools import pairwise

import numpy as np

from attacks.base import Claims, Control, SuiteAttack, common_rounds, need, require_seen
from attacks.families.sums.decoded import SURE_BITS
from attacks.scoring.disclosures import DisclosureClaim, Disclosures
from attacks.scoring.vectors import VECTOR_ERROR
from attacks.view.coalition import rows_of, words_of
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.wire import Step, View

_FEWEST = 3
"""Rows of a message: any two numbers lie on a line."""

_FLOAT_ERROR, _TINY = 1e-14, 1e-300


class VirtualRowVectors(SuiteAttack):
    """Solves the virtual rows of one message for the vector that they lie along.

    Game: Given the virtual rows of a client, without its name, tell its private vector.
    Adversary: Honest-but-curious denoisers, one or several.
    Needs: Payloads of noise messages and of the public table before the round, in a matrix
        factorization without noise; three virtual rows of a client.
    Statistic: Less the pull of the regularization, all rows of a message lie along the vector U.
        Where all virtual ratings are the client's mean r, the row of V is (r - U.V) U: the line
        through these numbers over V has the slope -|U|^2, and r gives the side. A vector is certain
        if its rows lie closer by 20 bits than those of any other origin would.
    Reference: Gradients of a matrix factorization are multiples of the user vector (Chai et al.
        2021), applied to the rows that denoisers of FedRec++ collect.
    Limits: Names nobody whose message is anonymous. With biases, or where virtual ratings are
        predicted or drawn, the direction of the vector alone is told, up to its side; with one
        value a vector has none.
    """

    name = "virtual-row-vectors"
    control = Control(measure="clients_exposed", on="ratings", who="server+denoisers")

    def claim(self, view: View) -> Claims:
        """Claim the vector of every message whose rows prove it."""
        require_seen(view, {Step.NOISE: "noise messages"})
        need(Knowledge.of(view).factorized, "rows are not those of a matrix factorization")
        noise = float(view.public["algorithm"].get("temperature") or 0.0)
        need(noise == 0.0, "rows carry noise")
        none = "no round has payloads of noise messages and of the public table before it"
        rounds = common_rounds(view, Step.NOISE, Step.MODEL, payload=True, otherwise=none)
        # The odds of 2^-20 are dealt out to the messages of all rounds.
        messages = sum(len(view.messages(Step.NOISE, round_)) for round_ in rounds)
        needed = SURE_BITS + float(np.log2(max(1, messages)))
        parts = tuple(part for round_ in rounds for part in _vectors(view, round_, needed))
        details = {"messages": messages, "vectors": sum(len(part.names) for part in parts)}
        return Claims(rounds=rounds, made=(DisclosureClaim(parts=parts),), details=details)


def _vectors(view: View, round_: int, needed: float) -> tuple[Disclosures, Disclosures]:
    """Vectors, and directions, that the messages of a round prove."""
    messages, block = rows_of(view.messages(Step.NOISE, round_, payload=True))
    algorithm, public = view.public["algorithm"], view.table(round_)[block.rows]
    levels = np.asarray([] if algorithm.get("biases") else view.public["rating_levels"])
    pulled = float(algorithm["regularization"]) * public - view.codec.decode(words_of(block))
    width = public.shape[1] - bool(algorithm.get("biases"))
    names = np.full(len(messages), -1) if messages.tags is not None else messages.senders.ids
    found = [
        vector_along(pulled[a:b], public[a:b], width, levels, view.codec.resolution, needed)
        for a, b in pairwise(block.indptr.tolist())
    ]
    kinds = []
    for whole in (True, False):
        own = [place for place, each in enumerate(found) if each is not None and each[1] is whole]
        vectors = [each[0] for each in found if each is not None and each[1] is whole]
        grid = np.reshape(vectors, (len(own), width)).astype(np.float64)
        part = Disclosures.of_vectors(
            round_, names[own].astype(np.int64), grid, directions=not whole
        )
        kinds.append(part)
    return kinds[0], kinds[1]


def vector_along(
    rows: FloatArray,
    public: FloatArray,
    width: int,
    levels: FloatArray,
    unit: float,
    needed: float,
) -> tuple[FloatArray, bool] | None:
    """The vector U of rows ``(r - U.V) U``, and whether its length and side are known as well.

    Args:
        rows: float64[N, d], each value off by half a unit at most.
        public: float64[N, d], V.
        width: values of the vector that count, the first ones.
        levels: the rating scale, which r lies within; of none, directions alone are told.
        unit: of the ring.
        needed: bits that the fit has to hold.

    Returns:
        float64[width]; None if nothing is certain.
    """
    count = len(rows)
    if count < _FEWEST:
        return None
    _, sizes, axes = np.linalg.svd(rows, full_matrices=False)
    within = np.sqrt(rows.size) * (unit / 2 + _FLOAT_ERROR * sizes[0])
    axis, along, tilts = axes[0][:width], rows @ axes[0], public @ axes[0]
    turned = within / max(_TINY, sizes[0] * float(np.linalg.norm(axis)))
    if np.linalg.norm(sizes[1:]) > within or turned > VECTOR_ERROR / 2:
        return None
    design = np.stack([tilts, np.ones(count)], axis=1)
    slope, level = np.linalg.lstsq(design, along)[0].tolist()
    off = float(np.linalg.norm(along - design @ (slope, level)))
    lever = float(np.linalg.norm(tilts - tilts.mean()))
    if off <= within < VECTOR_ERROR / 2 * -slope * lever:
        length, bits = np.sqrt(-slope), (count - 2) * np.log2(float(np.std(along)) / within)
        means = ((side, side * level / length) for side in (1.0, -1.0))
        sides = [side for side, mean in means if len(levels) and levels[0] <= mean <= levels[-1]]
        if len(sides) == 1 and bits >= needed:
            return sides[0] * length * axis, True
    beside = np.sort(np.abs(along))[:-1]  # of the longest, nothing tells the direction
    bits = (rows.shape[1] - 1) * float(np.log2(np.maximum(beside / within, 1.0)).sum())
    return (axis, False) if bits >= needed else None
