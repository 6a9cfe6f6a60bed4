"""Linkage: who sent an anonymous message, and which rows stand behind a denoiser's sums."""

from itertools import pairwise

import numpy as np

from attacks.base import Claims, Control, SuiteAttack, common_rounds, need, require_seen
from attacks.families.containment import Containment
from attacks.scoring.item_sets import keys_of, listed_rows
from attacks.scoring.links import Fits, LinkClaim
from attacks.scoring.rated_sets import RatedSetClaim
from attacks.scoring.rows import Rows
from attacks.scoring.virtual_rows import UnmaskedClaim
from attacks.view.coalition import rows_of, words_of
from attacks.view.knowledge import Knowledge
from secure_fedrec.core.arrays import IndexArray, IntArray, RingArray, WordArray
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Step, View

_AT_ONCE = 2**16
"""Rows of which the integers are held at once."""

_MATCHED_AT_ONCE = 2**20
"""Rows of messages, about, that are looked up among all uploads at once."""


class CollusionLinkage(SuiteAttack):
    """Joins the denoisers' anonymous messages to the server's identified uploads.

    Game: Given the uploads under names and the denoisers' anonymous messages of one round, name the
        sender of each message; what is left of its upload is its rated set.
    Adversary: Honest-but-curious server colluding with denoisers.
    Needs: Uploads and noise messages of the same round, item numbers at least.
    Statistic: By value: the rows of the message occur, item for item and bit for bit, in one
        upload. By set: the message's items are contained in one upload. By set and size: and the
        upload is larger by the factor 1 + 1 / rho.
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
        values = set(view.payload_rounds(Step.UPLOAD)) & set(view.payload_rounds(Step.NOISE))
        with_values = sorted(values & set(rounds))
        round_ = with_values[0] if with_values else rounds[0]
        return self._link(view, round_, values=bool(with_values))

    def _link(self, view: View, round_: int, *, values: bool) -> Claims:
        uploads, sent = rows_of(view.messages(Step.UPLOAD, round_, payload=values))
        noise, heard = rows_of(view.messages(Step.NOISE, round_, payload=values))
        need(len(noise), "the view holds no noise messages")
        full = np.flatnonzero(heard.lengths > 0)
        need(len(full), "the noise messages are empty: there are no virtual rows")
        noise, heard = rows_of(noise.select(full))
        if noise.tags is None:
            raise TypeError("noise carries tags")
        n_items, ratio = int(view.public["n_items"]), Knowledge.of(view).ratio
        both = Containment(sent=sent, heard=heard, n_items=n_items, ratio=ratio).fits()
        evidence = dict(zip(("set", "set_and_size"), both, strict=True))
        if values:
            evidence = {"value": _value_fit(sent, heard, view.codec), **evidence}
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


def _value_fit(sent: RowBlock, heard: RowBlock, codec: FixedPoint) -> Fits:
    """Every row of a message occurs, bit for bit, in the upload."""
    theirs = fingerprints(words_of(sent), codec) ^ _item_mark(sent.rows)
    ours = fingerprints(words_of(heard), codec) ^ _item_mark(heard.rows)
    order = np.argsort(theirs, kind="stable")
    theirs = theirs[order]
    starts = np.searchsorted(heard.indptr, np.arange(0, len(ours), _MATCHED_AT_ONCE))
    found = []
    for first, last in pairwise(np.unique([*starts, len(heard)]).tolist()):
        span = slice(heard.indptr[first], heard.indptr[last])
        mine = np.argsort(ours[span])  # sorted ones are found without a miss of the cache
        begin = np.searchsorted(theirs, ours[span][mine], side="left")
        copies = np.searchsorted(theirs, ours[span][mine], side="right") - begin
        message = np.repeat(np.arange(first, last), heard.lengths[first:last])[mine]
        offsets = np.arange(copies.sum()) - np.repeat(np.cumsum(copies) - copies, copies)
        match = order[np.repeat(begin, copies) + offsets]
        upload = np.searchsorted(sent.indptr, match, side="right") - 1
        pairs, rows = np.unique(np.repeat(message, copies) * len(sent) + upload, return_counts=True)
        messages, uploads = np.divmod(pairs, len(sent))
        whole = rows == heard.lengths[messages]
        found.append((messages[whole], uploads[whole]))
    messages, uploads = (np.concatenate(each) for each in zip(*found, strict=True))
    return Fits.of_pairs(messages, uploads, len(heard))


def fingerprints(values: RingArray, codec: FixedPoint) -> WordArray:
    """Linear 64-bit fingerprints of rows: the fingerprint of a sum is the sum of fingerprints.

    Args:
        values: ring words [N, d].
        codec: the ring.

    Returns:
        uint64[N]; unequal rows of one run collide with probability about 2^-64 each.
    """
    weights = np.random.Generator(np.random.Philox(key=20210202)).integers(
        0, 2**64, size=values.shape[1], dtype=np.uint64
    )
    weights |= np.uint64(1)
    prints = np.empty(len(values), dtype=np.uint64)
    for start in range(0, len(values), _AT_ONCE):
        words = codec.to_integers(values[start : start + _AT_ONCE]).view(np.uint64)
        prints[start : start + _AT_ONCE] = (words * weights).sum(axis=1, dtype=np.uint64)
    return prints


def _item_mark(rows: IndexArray) -> WordArray:
    return np.asarray((rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
