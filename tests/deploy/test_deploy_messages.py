"""What hosts tell each other is a message, whole and of nothing else, or it is refused."""

from collections.abc import Callable

import numpy as np
import pytest

from secure_fedrec.engines.distributed.host_messages import (
    Request,
    decode_parcels,
    decode_state,
    encode_parcels,
    encode_state,
)
from secure_fedrec.errors import WireError
from secure_fedrec.protection.session import SERVER, Node, Parcel, Role

PARCELS = [
    Parcel(SERVER, Node(Role.CLIENT, 7), "SETUP", b"to 7"),
    Parcel(Node(Role.DENOISER, 1), SERVER, "SUMS", b""),
]
STATE = {"": np.arange(6.0).reshape(3, 2), "biases": np.zeros((0, 4)), "scale": np.ones(1)}
REQUEST = Request(
    round=3,
    serial=5,
    settled=4,
    ahead=(4, 6),
    state=b"a state",
    clients=np.array([0, 2**32 - 2]),
    parcels=PARCELS,
    late=PARCELS[:1],
)
MESSAGES: dict[str, tuple[bytes, Callable[[bytes], object]]] = {
    "REQUEST": (REQUEST.encode(), Request.decode),
    "REPLY": (encode_parcels(PARCELS), decode_parcels),
    "state": (encode_state(STATE), decode_state),
}


def test_what_was_encoded_is_read() -> None:
    read = Request.decode(REQUEST.encode())
    for name in ("round", "serial", "settled", "ahead", "state", "parcels", "late"):
        assert getattr(read, name) == getattr(REQUEST, name)
    assert read.clients.tolist() == REQUEST.clients.tolist()
    assert decode_parcels(encode_parcels(PARCELS)) == PARCELS
    found = decode_state(encode_state(STATE))
    assert list(found) == sorted(STATE)
    for name, values in STATE.items():
        assert found[name].shape == values.shape
        assert found[name].tobytes() == values.tobytes()


@pytest.mark.parametrize("name", MESSAGES)
def test_truncated_and_trailing_bytes_are_refused(name: str) -> None:
    data, decode = MESSAGES[name]
    for wrong in (data + b"\0", *(data[:size] for size in range(len(data)))):
        with pytest.raises(WireError):
            decode(wrong)


def test_parties_that_there_are_none_of_are_refused() -> None:
    ours = encode_parcels(PARCELS[:1])
    for role, number in ((9, 1), (Role.SERVER, 1), (Role.CLIENT, 2**32 - 1)):
        wrong = ours[:9] + bytes([role]) + number.to_bytes(4, "little") + ours[14:]
        with pytest.raises(WireError, match="no party of role"):
            decode_parcels(wrong)


@pytest.mark.parametrize("shape", [(0,) * 65, (0, 2**32 - 1, 2**32 - 1)])
def test_a_state_whose_arrays_cannot_have_their_shape_is_refused(shape: tuple[int, ...]) -> None:
    sizes = b"".join(size.to_bytes(4, "little") for size in shape)
    state = (1).to_bytes(4, "little") + b"\x01a" + bytes([len(shape)]) + sizes
    with pytest.raises(WireError, match="no possible shape"):
        decode_state(state)
