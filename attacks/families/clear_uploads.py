"""Uploads that a stack says are hidden, and that can be read."""

import numpy as np

from attacks.base import Claims, Control, SuiteAttack, need
from attacks.scoring.clear_uploads import ClearUploadsClaim
from attacks.view.coalition import rows_of
from attacks.view.knowledge import Knowledge, flat_view, item_view
from attacks.view.named import in_the_clear, named_payload_rounds, named_rows, sees_named_rows
from secure_fedrec.core.arrays import BoolArray, IntArray
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import View


class ClearUploads(SuiteAttack):
    """Examines every message by itself, whatever the stack states about uploads.

    Game: Given uploads that are said to be hidden, tell which clients sent theirs in the clear.
    Adversary: Honest-but-curious server.
    Needs: Payloads of uploads that are said to be hidden.
    Statistic: Whether all words of a message lie within the ring's clip, as a client's own do.
        In a round of messages with uniform words, fewer than 2^-40 are expected to do so.
    Reference: Kerckhoffs's principle: that something is hidden has to be shown, not stated.
    Limits: Does not detect pads that look uniform but are not secret, such as repeated ones, nor
        uploads of so few words that chance could put them within the clip.
    """

    name = "clear-uploads"
    reads_item_rows = False
    control = Control(measure="clear_clients", on="careless", breaks="owners")

    def claim(self, view: View) -> Claims:
        """Claim the messages of all recorded rounds that can be read."""
        need(sees_named_rows(view), "the view holds no uploads")
        need(Knowledge.of(view).hidden, "uploads are not said to be hidden")
        rounds = need(named_payload_rounds(view), "no payload of an upload was recorded")
        seen: IntArray = np.zeros(0, dtype=np.int64)
        read: dict[int, tuple[IntArray, RowBlock]] = {}
        for round_ in rounds:
            messages, block = rows_of(named_rows(view, round_, payload=True))
            seen = np.union1d(seen, messages.senders.ids)
            told = _told(view, round_, len(block))
            if told.any():
                chosen, mine = rows_of(messages.select(np.flatnonzero(told)))
                read[round_] = chosen.senders.ids, mine
        return Claims(rounds=rounds, made=(ClearUploadsClaim(clients=seen, read=read),))


def _told(view: View, round_: int, messages: int) -> BoolArray:
    """Messages with a block that can be read."""
    told = np.zeros(messages, dtype=bool)
    for part in (item_view(view), flat_view(view)):
        if part is not None:
            _, block = rows_of(named_rows(part, round_, payload=True))
            told |= in_the_clear(block, part.codec)
    return told
