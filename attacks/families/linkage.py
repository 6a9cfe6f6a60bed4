"""Noise messages to denoisers: their senders, and the vector that their rows lie along."""

from itertools import pairwise
from typing import get_args

import numpy as np

from attacks.base import Claims, Control, SuiteAttack, common_rounds, need, require_seen
from attacks.families.containment import containing, fits_by_set
from attacks.families.sums.decoded import SURE_BITS
from attacks.scoring.disclosures import DisclosureClaim, Disclosures, Open
from attacks.scoring.item_sets import ItemSets, keys_of, listed_rows
from attacks.scoring.links import Fits, LinkClaim
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows
from attacks.scoring.vectors import VECTOR_ERROR
from attacks.scoring.virtual_rows import UnmaskedClaim
from attacks.view.coalition import rows_of, words_of
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import FloatArray, IndexArray, IntArray, RingArray, WordArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Step, View

_AT_ONCE = 2**16
"""Number of rows whose integers are held in memory at once."""


class CollusionLinkage(SuiteAttack):
    """Joins the denoisers' anonymous messages to the server's identified uploads.

    Game: Given the uploads under names and the denoisers' anonymous messages of one round, name the
        sender of each message; the rest of its upload is its rated set.
    Adversary: Honest-but-curious server colluding with denoisers.
    Needs: Uploads and noise messages of the same round, item numbers at least.
    Statistic: By value: the rows of the message occur, item for item and bit for bit, in one
        upload. By set: the message's items are contained in one upload. By set and size: in
        addition, the upload is larger by the factor 1 + 1 / rho.
    Reference: FedRec++ (Liang, Pan and Ming 2021), section Privacy Analysis, whose argument is that
        the channel is anonymous.
    Limits: By value fails if rows are re-randomised between the two channels; by set fails if
        messages are split or padded.
    """

    name = "collusion-linkage"
    reads_one_round = True
    control = Control(measure="linked_share", on="ratings", who="server+denoisers", breaks="owners")

    def claim(self, view: View) -> Claims:
        """Link every visible noise message of the first usable round."""
        require_seen(view, {Step.UPLOAD: "uploads", Step.NOISE: "noise messages"})
        none = "no round has both uploads and noise messages"
        rounds = common_rounds(view, Step.UPLOAD, Step.NOISE, otherwise=none)
        kept = (view.payload_rounds(step) for step in (Step.UPLOAD, Step.NOISE))
        with_values = sorted(set(rounds).intersection(*kept))
        round_, values = (with_values or rounds)[0], bool(with_values)
        uploads, sent = rows_of(view.messages(Step.UPLOAD, round_, payload=values))
        noise, heard = rows_of(view.messages(Step.NOISE, round_, payload=values))
        need(len(noise), "the view holds no noise messages")
        full = np.flatnonzero(heard.lengths > 0)
        need(len(full), "the noise messages are empty: there are no virtual rows")
        noise, heard = rows_of(noise.select(full))
        if noise.tags is None:
            raise TypeError("noise carries tags")
        n_items, ratio = int(view.public["n_items"]), Knowledge.of(view).ratio
        rule = np.nan if ratio is None else ratio
        both = fits_by_set(sent, heard, n_items, rule)
        evidence = dict(zip(("set", "set_and_size"), both, strict=True))
        if values:
            evidence = {"value": _fits_by_value(sent, heard, view.codec), **evidence}
        link = LinkClaim(round=round_, tags=noise.tags, senders=uploads.senders.ids, fits=evidence)
        guesses = link.guesses
        best = guesses["set_and_size"]
        if values:
            best = np.where(guesses["value"] >= 0, guesses["value"], best)
        return _claims(link, best, sent, heard, view)


def _claims(
    link: LinkClaim, guess: IntArray, sent: RowBlock, heard: RowBlock, view: View
) -> Claims:
    """The rated set of a linked client is its upload less the linked message."""
    senders = link.senders
    n_items = int(view.public["n_items"])
    listed, _ = listed_rows(senders, senders, sent, n_items)
    linked = np.repeat(guess, heard.lengths)
    rows = np.searchsorted(senders, linked[linked >= 0])
    virtual = np.isin(keys_of(listed), rows * n_items + heard.rows[linked >= 0])
    known = np.repeat(np.isin(senders, guess), listed.lengths)
    scores = np.where(virtual, 0.0, np.where(known, 2.0, 1.0))
    rated = RatedSetClaim.of_listed(senders, listed, scores, scores == 2.0)
    found = Rows.marked(listed, virtual)
    proven = UnmaskedClaim(clients=senders, visible=rated.visible, proven=found)
    return Claims(rounds=(link.round,), made=(rated, link, proven))


def _fits_by_value(sent: RowBlock, heard: RowBlock, codec: FixedPoint) -> Fits:
    """Uploads that contain every row of a message, bit for bit."""
    marks = [fingerprints(words_of(each), codec) ^ item_mark(each.rows) for each in (sent, heard)]
    distinct, kinds = np.unique(np.concatenate(marks), return_inverse=True)
    both = np.split(kinds.astype(np.int32), [len(sent.rows)])
    sets = (
        ItemSets(indptr=block.indptr, items=own, n_items=len(distinct))
        for block, own in zip((sent, heard), both, strict=True)
    )
    return Fits(*containing(*sets), len(heard))


def fingerprints(values: RingArray, codec: FixedPoint) -> WordArray:
    """Linear 64-bit fingerprints of rows: the fingerprint of a sum is the sum of fingerprints.

    Args:
        values: ring words [N, d].
        codec: the ring.

    Returns:
        uint64[N]; unequal rows of one run collide with probability about 2^-64 each.
    """
    draws = np.random.Generator(np.random.Philox(key=20210202))
    weights = draws.integers(0, 2**64, size=values.shape[1], dtype=np.uint64) | np.uint64(1)
    prints = np.empty(len(values), dtype=np.uint64)
    for start in range(0, len(values), _AT_ONCE):
        words = codec.to_integers(values[start : start + _AT_ONCE]).view(np.uint64)
        prints[start : start + _AT_ONCE] = (words * weights).sum(axis=1, dtype=np.uint64)
    return prints


def item_mark(rows: IndexArray) -> WordArray:
    """Marks that distinguish equal rows of different items: uint64[N]."""
    return np.asarray((rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))


_FEWEST = 3
"""Fewest rows of a message of unknown form, since any two points lie on a line."""

_FLOAT_ERROR, _TINY = 1e-14, 1e-300


class VirtualRowVectors(SuiteAttack):
    """Computes the vector along which the virtual rows of one message lie.

    Game: Given the virtual rows of a client, without its name, tell its private vector.
    Adversary: Honest-but-curious denoisers, one or several.
    Needs: Payloads of noise messages and of the public table before the round, in a matrix
        factorization without noise; one virtual row of a client.
    Statistic: Without the regularization term, all rows of a message are multiples of the vector U,
        since the protocol gives all rows of a client this form. So the longest row has its
        direction, which is certain without further rows if rounding cannot change it and no other
        row of the message deviates from it. Where all virtual ratings are the client's mean r, the
        row of V is (r - U.V) U: the line through these numbers over V has the slope -|U|^2, and r
        gives the sign if only one fits the scale. Such a vector is certain if its rows fit by 20
        bits better than chance would.
    Reference: Gradients of a matrix factorization are multiples of the user vector (Chai et al.
        2021), applied to the rows that denoisers of FedRec++ collect.
    Limits: Does not name the sender of an anonymous message. With biases, or where virtual ratings
        are predicted or drawn, only the direction of the vector is found, up to its sign; a vector
        of one value does not have a direction.
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
        # The error probability of 2^-20 is divided among the messages of all rounds.
        messages = sum(len(view.messages(Step.NOISE, round_)) for round_ in rounds)
        needed = SURE_BITS + float(np.log2(max(1, messages)))
        parts = tuple(part for round_ in rounds for part in _vectors(view, round_, needed))
        details = {"messages": messages, "vectors": sum(len(part.names) for part in parts)}
        return Claims(rounds=rounds, made=(DisclosureClaim(parts=parts),), details=details)


def _vectors(view: View, round_: int, needed: float) -> tuple[Disclosures, ...]:
    """Vectors that the messages of a round prove, grouped by what remains unknown of them."""
    messages, block = rows_of(view.messages(Step.NOISE, round_, payload=True))
    algorithm, public = view.public["algorithm"], view.table(round_)[block.rows]
    levels = np.asarray([] if algorithm.get("biases") else view.public["rating_levels"])
    sent, noised = view.codec.decode(words_of(block)), Knowledge.of(view).says_noised
    pulled = float(algorithm["regularization"]) * public - sent
    # A value at the limit of the ring may have been clipped.
    formed = np.full(len(sent), not noised) & (np.abs(sent) < view.codec.bound).all(axis=1)
    width = public.shape[1] - bool(algorithm.get("biases"))
    names = np.full(len(messages), -1) if messages.tags is not None else messages.senders.ids
    known = width, levels, view.codec.resolution, needed
    found = [
        vector_along(pulled[a:b], public[a:b], *known, formed=bool(formed[a:b].all()))
        for a, b in pairwise(block.indptr.tolist())
    ]
    kinds = []
    for up_to in get_args(Open):
        own = [place for place, each in enumerate(found) if each is not None and each[1] == up_to]
        vectors = [each[0] for each in found if each is not None and each[1] == up_to]
        grid = np.reshape(vectors, (len(own), width)).astype(np.float64)
        whose = names[own].astype(np.int64)
        kinds.append(Disclosures.of_vectors(round_, whose, grid, up_to=up_to))
    return tuple(kinds)


def vector_along(
    rows: FloatArray,
    public: FloatArray,
    width: int,
    levels: FloatArray,
    unit: float,
    needed: float,
    *,
    formed: bool = False,
) -> tuple[FloatArray, Open] | None:
    """The vector U of rows ``(r - U.V) U``, and what remains unknown of it.

    Args:
        rows: float64[N, d], each value off by half a unit at most.
        public: float64[N, d], V.
        width: number of leading values that belong to the vector.
        levels: the rating scale, which r lies within; without levels, only directions are found.
        unit: unit of the ring.
        needed: bits that the fit has to hold.
        formed: whether the rows are known to have that form, so that the longest row alone gives
            the direction, with which the others must agree.

    Returns:
        float64[width]; None if nothing is certain.
    """
    count = len(rows)
    if count < (1 if formed else _FEWEST):
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
        if sides and bits >= needed:
            return sides[0] * length * axis, "nothing" if len(sides) == 1 else "side"
    beside = np.sort(np.abs(along))[:-1]  # the longest row determines its own direction
    bits = (rows.shape[1] - 1) * float(np.log2(np.maximum(beside / within, 1.0)).sum())
    return (axis, "length") if bits >= needed or (formed and width > 1) else None
