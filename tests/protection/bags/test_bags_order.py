"""A bag lies in the ascending order of its vectors' values, whatever they arrived in."""

import numpy as np
import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.bags import BagShape, canonical_order
from secure_fedrec.protection.bags.received_vectors import Arrivals
from secure_fedrec.protection.base.table import client_messages
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import Messages, Step

CODEC = FixedPoint()


@pytest.mark.parametrize("width", [1, 2, 3, 5])
def test_vectors_lie_in_the_order_of_all_their_values(width: int) -> None:
    rng, tied = np.random.default_rng(width), 0
    for count in (*range(6), *[40] * 20, 300):
        values = rng.integers(-2, 2, size=(count, width)).astype(np.float64)
        words = CODEC.encode(values)
        ordered = canonical_order(words, CODEC)
        assert CODEC.decode(ordered).tolist() == sorted(values.tolist())
        assert canonical_order(words[rng.permutation(count)], CODEC).tobytes() == ordered.tobytes()
        tied += count - len(np.unique(values[:, :2], axis=0)) if count else 0
    assert tied > 200  # vectors that the first values do not tell apart


def test_what_lies_in_order_is_not_copied() -> None:
    words = CODEC.encode(np.arange(30.0).reshape(10, 3))
    assert canonical_order(words, CODEC) is words
    assert not np.shares_memory(canonical_order(words[::-1], CODEC), words)


def sent(client: int, vectors: object) -> Messages:
    words = np.asarray(vectors)
    block = SetBlock(indptr=np.array([0, len(words)]), values=words)
    clients, sizes = np.array([client]), np.array([words.nbytes])
    return client_messages(1, clients, block, sizes, step=Step.BAG, bag="singles")


def test_a_bag_takes_as_many_vectors_as_it_may_hold_and_no_others() -> None:
    def bag() -> Arrivals:
        shape = BagShape(width=2, most=3)
        return Arrivals(round_=1, name="singles", shape=shape, due=2, most=6, codec=CODEC)

    def accept(arrivals: Arrivals, client: int, vectors: object) -> None:
        message = sent(client, vectors)
        arrivals.accept(message, message)

    one, other = CODEC.encode(np.ones((2, 2))), CODEC.encode(np.zeros((3, 2)))
    whole = bag()
    accept(whole, 0, one)
    accept(whole, 1, other)
    assert CODEC.decode(whole.close()).tolist() == [[0, 0]] * 3 + [[1, 1]] * 2
    crowded = bag()
    accept(crowded, 0, np.repeat(one, 2, axis=0))
    accept(crowded, 1, other)
    with pytest.raises(ProtocolError, match=r"7 vectors .* arrived, 6 may be"):
        crowded.close()
    for strange in (one[:, :1], one.astype(np.uint32)):
        with pytest.raises(ProtocolError, match="values came for"):
            accept(bag(), 0, strange)
