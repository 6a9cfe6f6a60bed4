"""Between Flower's records and what a protected mean is made of: flat vectors, and hashes."""

import struct
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from math import prod
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Message, Metadata, RecordDict
from numpy.typing import NDArray

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.engines.distributed.mean_site import Task
from secure_fedrec.engines.flower.message_bytes import RECORD
from secure_fedrec.errors import EncodingError, ProtocolError, RefusalError
from secure_fedrec.protection.masking import state_hash
from secure_fedrec.protection.means.terms import Update

_LABEL = b"secure-fedrec|v2|flower|task|"
_ALWAYS = 1e12
"""Seconds that a message lives."""
_WHOLE = 2**53
"""Up to here every integer is a float64."""
_BYTES = 8


def agreed_message(message: Message, client: int) -> Message:
    """What an app is given of a message: what all clients are sent alike, and nothing else.

    A round's statement covers type, group and records. Everything else that Flower's messages hold
    (identities, times, nodes) is the same in every message that an app gets, so it computes from
    what was agreed on.

    Args:
        message: from the SuperLink.
        client: number of this client on the roster, in the place of the node's.
    """
    records = {name: each for name, each in message.content.items() if name != RECORD}
    content = RecordDict({name: _ordered(records[name]) for name in sorted(records)})
    metadata = Metadata(
        run_id=0,
        message_id="",
        src_node_id=0,
        dst_node_id=client,
        reply_to_message_id="",
        group_id=message.metadata.group_id,
        created_at=0.0,
        ttl=_ALWAYS,
        message_type=message.metadata.message_type,
    )
    given: Message = Message(content, metadata=metadata)  # type: ignore[call-overload]
    return given


def _ordered(record: Any) -> Any:
    """A record whose order tells nothing; arrays stand in the order that they are read in."""
    if isinstance(record, ArrayRecord):
        return record
    return type(record)({key: record[key] for key in sorted(record)})


def told_digest(*told: Mapping[str, Any]) -> bytes:
    """32 bytes, hash of settings that a host was told, such as a run's configuration."""
    return _digest(f"{key} {_plain(each[key])!r}".encode() for each in told for key in sorted(each))


def task_digest(message: Message) -> bytes:
    """32 bytes, hash of all that a message tells an app (``agreed_message``)."""
    kind, group = message.metadata.message_type, message.metadata.group_id
    return _digest((kind.encode(), group.encode(), *_parts(message.content)))


def _digest(parts: Iterable[bytes]) -> bytes:
    digest = sha256(_LABEL)
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def task_of(message: Message, compute: Callable[[ArrayRecord], Update]) -> Task:
    """What a train message asks a client to compute.

    Args:
        message: as the app is given it (``agreed_message``).
        compute: does it, from the model that is sent.

    Raises:
        ProtocolError: the message holds no model, or more than one.
        EncodingError: the model holds what no mean is taken of.
    """
    _, sent = model_of(message.content)
    return Task(
        digest=task_digest(message),
        state=model_hash(sent),
        length=sum(prod(array.shape) for array in sent.values()),
        compute=lambda: compute(sent),
    )


def model_of(content: RecordDict) -> tuple[str, ArrayRecord]:
    """The one record of arrays in a message, and its name.

    Raises:
        ProtocolError: there is none, or more than one.
    """
    found = list(content.array_records.items())
    if len(found) != 1:
        raise ProtocolError(f"a message has {len(found)} records of arrays, and must have one")
    return found[0]


def model_hash(arrays: ArrayRecord) -> bytes:
    """Hash of a model, as every host makes it of what it was sent.

    Raises:
        ConfigError: it is empty, or holds what are no numbers.
        EncodingError: a value is not finite, or may be rounded in a mean.
    """
    found = {name: array.numpy() for name, array in arrays.items()}
    for name, values in found.items():
        if values.dtype.kind not in "fiub" or values.dtype.itemsize > _BYTES:
            raise EncodingError(f"array {name} holds {values.dtype}: no mean is taken of such")
        if not np.isfinite(values).all():
            raise EncodingError(f"array {name} holds values that are not finite")
        _require_exact(values, _WHOLE // 2)
    return state_hash(found)


def moved(sent: ArrayRecord, found: ArrayRecord) -> FloatArray:
    """float64[d]: what a model has moved by, its arrays end to end in the order they were sent in.

    Raises:
        ProtocolError: the arrays are not those that were sent.
        EncodingError: an integer has no float64 of its own.
    """
    if set(sent) != set(found):
        raise RefusalError("the arrays of a reply have other names than those that were sent")
    parts = []
    for name, array in sent.items():
        before, after = array.numpy(), found[name].numpy()
        if before.shape != after.shape:
            raise RefusalError(f"array {name} of a reply has another shape than the one sent")
        parts.append((_exact(after) - _exact(before)).reshape(-1))
    return np.concatenate(parts) if parts else np.zeros(0)


def moved_by(sent: ArrayRecord, values: FloatArray) -> ArrayRecord:
    """The model that has moved by a mean; inverse of ``moved``.

    An array of floats keeps its type, one of integers becomes float64: so it is in a weighted mean
    of Flower's own.

    Raises:
        EncodingError: an integer has no float64 of its own, or a value leaves the array's type.
    """
    arrays, start = {}, 0
    for name, array in sent.items():
        before = array.numpy()
        part = values[start : start + before.size].reshape(before.shape)
        kind = before.dtype if before.dtype.kind == "f" else np.float64
        there = _exact(before) + part
        if not np.all(np.abs(there) <= np.finfo(kind).max):
            raise EncodingError(f"the mean of array {name} leaves {np.dtype(kind).name}")
        arrays[name] = Array(np.asarray(there.astype(kind)))
        start += before.size
    return ArrayRecord(arrays)


def _exact(array: NDArray[Any]) -> FloatArray:
    _require_exact(array)
    return array.astype(np.float64)


def _require_exact(array: NDArray[Any], most: int = _WHOLE) -> None:
    """Refuse integers that would be rounded on their way into a mean of floats.

    Args:
        array: any values.
        most: largest magnitude; less where a client's integers have to have room to move.

    Raises:
        EncodingError: there are such.
    """
    if array.dtype.kind not in "iu" or not array.size:
        return
    if not -most <= int(array.min()) <= int(array.max()) <= most:
        raise EncodingError(f"integers beyond {most} in a model: a mean would round them")


def _parts(content: RecordDict) -> Iterable[bytes]:
    for name, record in content.items():
        yield f"{type(record).__name__} {name} {len(record)}".encode()
        for key, value in record.items():
            yield key.encode()
            if isinstance(value, Array):
                yield f"{value.dtype} {value.shape} {value.stype}".encode()
                yield value.data
            else:
                yield repr(_plain(value)).encode()


def _plain(value: Any) -> Any:
    """What a value is told apart by: of a float its bits, since NaNs have several and one name."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return ("float", struct.pack("<d", value)) if isinstance(value, float) else value
