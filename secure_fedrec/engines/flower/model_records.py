"""Converts Flower's records to the inputs of a protected mean: arrays by name, and hashes."""

import struct
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

from flwr.app import Array, ArrayRecord, Message, Metadata, RecordDict
from numpy.typing import NDArray

from secure_fedrec.engines.distributed.mean_site import Task
from secure_fedrec.engines.flower.message_bytes import RECORD
from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.means import Arrays, Update

_LABEL = b"secure-fedrec|v2|flower|task|"
_ALWAYS = 1e12
"""Lifetime of a message in seconds."""


def agreed_message(message: Message, client: int) -> Message:
    """The part of a message that an app gets: only what is the same for all clients.

    A round's statement covers type, group and records. Everything else that Flower's messages hold
    (identities, times, nodes) is the same in every message that an app gets, so its computation
    depends only on what was agreed on.

    Args:
        message: from the SuperLink.
        client: number of this client on the roster, which replaces the node's.
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
    """A record in an order independent of the sender; arrays keep their order."""
    if isinstance(record, ArrayRecord):
        return record
    return type(record)({key: record[key] for key in sorted(record)})


def told_digest(*told: Mapping[str, Any]) -> bytes:
    """32 bytes, hash of a host's settings, such as a run's configuration."""
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


def task_of(message: Message, compute: Callable[[Arrays], Update]) -> Task:
    """The task of a client in a train message.

    Args:
        message: as the app is given it (``agreed_message``).
        compute: does it, from the model that is sent.

    Raises:
        ProtocolError: the message holds no model, or more than one.
    """
    sent = arrays_of(model_of(message.content)[1])
    return Task(digest=task_digest(message), model=sent, compute=lambda: compute(sent))


def model_of(content: RecordDict) -> tuple[str, ArrayRecord]:
    """The one record of arrays in a message, and its name.

    Raises:
        ProtocolError: a record is missing, or there is more than one.
    """
    found = list(content.array_records.items())
    if len(found) != 1:
        raise ProtocolError(f"a message has {len(found)} records of arrays, and must have one")
    return found[0]


def arrays_of(model: ArrayRecord) -> dict[str, NDArray[Any]]:
    """The arrays of a record."""
    return {name: array.numpy() for name, array in model.items()}


def metrics_of(reply: Message) -> dict[str, Any]:
    """The metrics of all records of a reply, by name."""
    records = reply.content.metric_records.values()
    return {name: value for record in records for name, value in record.items()}


def replaced(model: ArrayRecord, arrays: Mapping[str, Array]) -> ArrayRecord:
    """A model with some of its arrays replaced."""
    return ArrayRecord({name: arrays.get(name, array) for name, array in model.items()})


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
    """The form in which values are compared: floats by their bits, since NaNs have several."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return ("float", struct.pack("<d", value)) if isinstance(value, float) else value
