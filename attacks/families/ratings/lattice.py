"""Rating recovery from one upload: the rank-one lattice decode.

A row is ``-e U + lambda V_i`` with e = r - U . V_i. The server knows V and lambda, so what is left
after subtracting lambda V_i has rank one, and its direction w is that of the private vector: U = s
w. With a = row . w and b = V_i . w, the rating behind each row is

    r(s) = -a / s + s b

with one unknown scale s for the whole upload. True ratings lie on the public rating scale; virtual
ones (a mean, a prediction) do not. Each guess "row n has rating v" gives a quadratic for s; the s
that puts most rows on the scale wins.

With biases every client adds its own constant to all of its predictions: a row minus lambda [V, b]
is -e [U, a], and e = r - m - [U, a] . [V, b]. So the mean m is unknown as well as the scale of the
vector. Differences of ratings do not depend on m, so the scale is fitted to the differences between
a few rows and all others. The slope a is in the last column and near 1 (exactly 1 before the first
round), so few scales have to be tried. Then m is known up to a whole number of levels: the value
that puts most rows on the scale is taken, and of several the highest, because nearly every client
gives the best rating once.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from attacks.base import Claims, Control, SuiteAttack, need
from attacks.scoring.item_sets import listed_rows
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.ratings import RatingClaim
from attacks.scoring.vectors import VectorClaim
from attacks.view.coalition import words_of
from attacks.view.knowledge import Knowledge
from attacks.view.named import named_payload_rounds, read_rows, sees_named_rows
from secure_fedrec.core.arrays import BoolArray, FloatArray, IntArray
from secure_fedrec.wire import Step, View

_NOISE_MULTIPLE = 8.0
_FLOAT_NOISE = 1e-9
_RING_NOISE = 1e-5
_WIDEST = 0.2  # share of a rating step: a larger tolerance fits any value
_HIDDEN = -1e7
_REFERENCES = 6  # at rho = 3, where 1/4 of rows is real, all 6 are virtual with probability 0.18
_GUESS_ROWS = 48  # at rho = 3, all 48 are virtual with probability below 1e-5
_SLOPES = (0.25, 4.0)
_WIDEST_RESIDUAL = 3.0


class _Decoded(NamedTuple):
    """One upload after the decode.

    Attributes:
        ratings: float64[N], r(s) of every row.
        distance: float64[N], to the nearest rating, in multiples of the tolerance.
        vector: float64[d], U.
    """

    ratings: FloatArray
    distance: FloatArray
    vector: FloatArray


class Lattice(SuiteAttack):
    """Decodes single uploads.

    Game: Given one upload of a client, tell its real from its virtual rows, and name the ratings
        and the private vector.
    Adversary: Honest-but-curious server.
    Needs: Payloads of uploads and the public table of one round; regularization and rating scale
        are public.
    Statistic: Minus the distance of the decoded rating to the rating scale, after fitting the one
        unknown scale of the user vector.
    Reference: Rank-one structure of matrix-factorization gradients; cf. Chai et al. 2020 (FedMF),
        who need two rounds.
    Limits: Assumes one gradient step of a bilinear model. Clients whose mean rating lies on the
        scale hide their average-filled rows; noise on the rows widens the tolerance until nothing
        can be told.
    """

    name = "lattice"
    control = Control(measure="rating_accuracy", on="ratings", breaks="owners")
    reads_one_round = True

    def claim(self, view: View) -> Claims:
        """Decode every recorded upload of the first usable round."""
        need(view.sees(Step.UPLOAD) or sees_named_rows(view), "the view holds no uploads")
        factorized = Knowledge.of(view).factorized
        need(factorized, "rows are not one gradient step of matrix factorization")
        need(view.sees(Step.MODEL), "the view holds no public table")
        rounds = [r for r in named_payload_rounds(view) if r in view.payload_rounds(Step.MODEL)]
        need(rounds, "no round was recorded with payloads of uploads and the public table")
        round_ = rounds[0]
        messages, block, plain = read_rows(view, round_)
        clients = messages.senders.ids
        need(len(clients), f"the view holds no uploads of round {round_}")
        items = block.rows.astype(np.int64)
        table, words = view.table(round_), words_of(block)
        pull = float(view.public["algorithm"]["regularization"]) * table
        levels = np.asarray(view.public["rating_levels"], dtype=np.float64)
        spans = list(zip(block.indptr[:-1].tolist(), block.indptr[1:].tolist(), strict=True))
        biases = bool(view.public["algorithm"]["biases"])
        decode = partial(_decode_upload, biased=biases)
        decoded = []
        # One upload at a time: decoded, a round is many times as large.
        for (start, stop), told in zip(spans, plain.tolist(), strict=True):
            own = items[start:stop]
            rows = view.codec.decode(words[start:stop]) - pull[own]
            decoded.append(decode(rows, table[own], levels) if told else _undecided(rows, levels))
        ratings = np.concatenate([one.ratings for one in decoded])
        distance = np.concatenate([one.distance for one in decoded])
        owners = np.repeat(clients, block.lengths)
        listed, place = listed_rows(clients, clients, block, int(view.public["n_items"]))
        scores, predicted = np.empty(len(listed.items)), np.empty(len(listed.items), dtype=bool)
        scores[place], predicted[place] = -np.minimum(distance, 1e6), distance <= 1.0
        nearest = levels[nearest_levels(ratings, levels)]
        vectors = np.stack([one.vector for one in decoded])
        if biases:
            vectors = vectors[:, :-1]  # less the slope
        rated = RatedSetClaim.of_listed(clients, listed, scores, predicted, rest=_HIDDEN)
        named = RatingClaim(clients=owners, items=items, ratings=nearest, about=clients)
        if not vectors.shape[1]:
            return Claims(rounds=(round_,), made=(rated, named))
        vector = VectorClaim(round=round_, clients=clients, vectors=vectors)
        return Claims(rounds=(round_,), made=(rated, named, vector))


def _decode_upload(
    rows: FloatArray, vectors: FloatArray, levels: FloatArray, *, biased: bool
) -> _Decoded:
    """Decode one upload: rows and item vectors are float64[N, d].

    Args:
        rows: less the pull of the regularization.
        vectors: vectors of their items.
        levels: the rating scale.
        biased: whether the client adds a mean of its own.
    """
    if len(rows) < 1 + biased or (biased and hides_residuals(rows, levels)):
        return _undecided(rows, levels)
    direction = np.linalg.svd(rows, full_matrices=False)[2][0]
    a, b = rows @ direction, vectors @ direction
    if not biased and _is_noise(float(np.sum(a**2)), float(np.sum(rows**2)), rows.shape):
        return _undecided(rows, levels)
    noise = float(np.sqrt(np.mean((rows - a[:, None] * direction) ** 2)))
    if biased:
        # One column leaves no remainder to tell the rounding by.
        loose = _NOISE_MULTIPLE * max(noise, _RING_NOISE) + _FLOAT_NOISE
        share = float(direction[-1]) or _FLOAT_NOISE
        ratings, scale = fit_offset(a, b, levels, slope_share=share, tolerance=loose)
        tolerance = min(loose / abs(scale), _WIDEST * float(levels[1] - levels[0]))
    else:
        scale = _fit_scale(a, b, levels, noise)
        ratings = -a / scale + scale * b
        tolerance = float(_tolerance(noise, np.array([scale]), levels)[0])
    gap = np.abs(ratings - levels[nearest_levels(ratings, levels)])
    turned = not biased and levels[0] == -levels[-1]
    if turned and ratings[gap <= tolerance].sum() < 0:
        # On a scale symmetric around 0, flipped signs fit as well: ratings are assumed to be
        # positive on average.
        scale, ratings = -scale, -ratings
    return _Decoded(ratings=ratings, distance=gap / tolerance, vector=scale * direction)


def _undecided(rows: FloatArray, levels: FloatArray) -> _Decoded:
    """Decoded ratings that carry no information: the middle of the scale, with a large distance."""
    middle = np.full(len(rows), levels[len(levels) // 2])
    far = np.full(len(rows), np.inf)
    return _Decoded(ratings=middle, distance=far, vector=np.zeros(rows.shape[1]))


def _is_noise(along: float, total: float, shape: tuple[int, ...]) -> bool:
    """Whether the leading direction of [N, d] rows holds no more than that of independent noise.

    The largest singular value of noise squares to (1 + sqrt(d / N))^2 / d of the whole (Marchenko
    and Pastur 1967); a rank-one upload has nearly all of it there. Hidden uploads are noise, and
    fitting a scale to each would take minutes without result.
    """
    size, width = shape
    return size >= 4 * width and along <= 1.2 * (1 + (width / size) ** 0.5) ** 2 / width * total


def _fit_scale(a: FloatArray, b: FloatArray, levels: FloatArray, noise: float) -> float:
    """The scale that puts most rows on the rating scale."""
    found = scale_roots(a, b, levels)
    found = found[np.isfinite(found) & (found != 0.0)]
    candidates = found if len(found) else np.ones(1)
    tolerance = _tolerance(noise, candidates, levels)
    ratings = -a / candidates[:, None] + candidates[:, None] * b
    gaps = np.abs(ratings - levels[nearest_levels(ratings, levels)])
    hits = (gaps <= tolerance[:, None]).sum(axis=1)
    # A wide tolerance also hits by chance, so hits are compared with the share of the scale that it
    # covers.
    chance = 2 * tolerance / (levels[1] - levels[0]) * len(a)
    best = int(np.argmax(hits - chance))
    return refine_scale(a, b, levels, float(candidates[best]), gaps[best] <= tolerance[best])


def refine_scale(
    a: FloatArray, b: FloatArray, levels: FloatArray, scale: float, hits: BoolArray
) -> float:
    """Newton steps on the squared misfit of the rows that hit, their ratings held fixed."""
    if not hits.any():
        return scale
    a, b = a[hits], b[hits]
    fixed = levels[nearest_levels(-a / scale + scale * b, levels)]
    for _ in range(3):
        misfit = -a / scale + scale * b - fixed
        slope = a / scale**2 + b
        power = float(slope @ slope)
        if power == 0.0:
            break
        scale -= float(slope @ misfit) / power
    return scale


def _tolerance(noise: float, scales: FloatArray, levels: FloatArray) -> FloatArray:
    spacing = float(levels[1] - levels[0])
    wide = _NOISE_MULTIPLE * noise / np.abs(scales) + _FLOAT_NOISE
    return np.asarray(np.minimum(wide, _WIDEST * spacing))


def nearest_levels(ratings: FloatArray, levels: FloatArray) -> IntArray:
    """Index of the nearest level (levels are evenly spaced)."""
    position = np.rint((ratings - levels[0]) / (levels[1] - levels[0]))
    return np.asarray(np.clip(position, 0, len(levels) - 1).astype(np.int64))


def scale_roots(a: FloatArray, b: FloatArray, values: FloatArray) -> FloatArray:
    """Both roots of s^2 b - v s - a = 0 for some rows and every value v, where they are real."""
    chosen = np.linspace(0, len(a) - 1, min(len(a), _GUESS_ROWS)).astype(np.int64)
    a, b = a[chosen, None], b[chosen, None]
    inside = values**2 + 4 * a * b
    # The sign is that of ``values``, so that the sum does not cancel.
    root = values + np.copysign(np.sqrt(np.maximum(inside, 0.0)), values)
    # With a level of 0, the sum is 0 where the row or the item vector is 0, so roots do not tell
    # the scale there.
    small = np.divide(-2 * a, root, out=np.zeros_like(root), where=root != 0)
    large = np.divide(root, 2 * b, out=np.zeros_like(root), where=b != 0)
    return np.concatenate([small[inside >= 0], large[inside >= 0]])


def hides_residuals(rows: FloatArray, levels: FloatArray) -> bool:
    """Whether the last column is too long for residuals of ratings: the upload is masked."""
    return bool(np.median(np.abs(rows[:, -1])) > _WIDEST_RESIDUAL * (levels[-1] - levels[0]))


def fit_offset(
    a: FloatArray, b: FloatArray, levels: FloatArray, *, slope_share: float, tolerance: float
) -> tuple[FloatArray, float]:
    """Ratings ``-a / s + s b + m`` of the scale and the offset that put most rows on the levels.

    Args:
        a: float64[N], rows along the vector's direction.
        b: float64[N], item vectors and biases along it.
        levels: float64[L], the rating scale, evenly spaced.
        slope_share: last coordinate of the direction, not 0.
        tolerance: of a rating at scale 1, in stars.

    Returns:
        The ratings, float64[N], and the scale s.
    """
    # Equal rows agree at any scale; all average-filled ones are equal before the first round.
    grid = np.rint(np.stack([a, b], axis=1) / tolerance)
    once = np.sort(np.unique(grid, axis=0, return_index=True)[1])
    chosen = np.linspace(0, len(once) - 1, min(len(once), _REFERENCES)).astype(np.int64)
    like = partial(_fit, a[once], b[once], levels, slope_share, tolerance)
    _, scale, reference = max(map(like, np.unique(chosen).tolist()), key=lambda fit: fit[0])
    values = -a / scale + scale * b
    near = tolerance / abs(scale)
    return _shifted(values, int(once[reference]), levels, near), scale


def _fit(
    a: FloatArray, b: FloatArray, levels: FloatArray, share: float, tolerance: float, reference: int
) -> tuple[float, float, int]:
    """Rows that hit beyond chance, the scale, and the row that all others are compared with."""
    spacing = float(levels[1] - levels[0])
    scales = _candidates(a - a[reference], b - b[reference], levels, share)
    values = -a / scales[:, None] + scales[:, None] * b
    steps = (values - values[:, [reference]]) / spacing
    gaps = np.abs(steps - np.rint(steps)) * spacing
    inside = np.abs(steps) <= len(levels) - 1 + tolerance
    near = np.minimum(tolerance / np.abs(scales), spacing / 5)
    hits = ((gaps <= near[:, None]) & inside).sum(axis=1) - 2 * near / spacing * len(a)
    best = int(np.argmax(hits))
    return float(hits[best]), float(scales[best]), reference


def _candidates(a: FloatArray, b: FloatArray, levels: FloatArray, slope_share: float) -> FloatArray:
    """Slope 1, and the roots for all differences of ratings."""
    above = levels[1:] - levels[0]
    found = scale_roots(a, b, np.concatenate([-above, above]))
    slopes = found * slope_share
    near: BoolArray = (slopes >= _SLOPES[0]) & (slopes <= _SLOPES[1])
    return np.concatenate([[1.0 / slope_share], found[near]])


def _shifted(
    values: FloatArray, reference: int, levels: FloatArray, tolerance: float
) -> FloatArray:
    """Values on the levels: the reference row gets the rating that brings most others there."""
    spacing = float(levels[1] - levels[0])
    shifted = values - values[reference] + levels[:, None]
    places = (shifted - levels[0]) / spacing
    on = (np.abs(places - np.rint(places)) * spacing <= tolerance) & (places > -0.5)
    on &= places < len(levels) - 0.5
    hits = on.sum(axis=1)
    best = int(np.flatnonzero(hits == hits.max())[-1])
    return np.asarray(shifted[best])
