"""This package's bytes in Flower's messages: one field, and a marker for a reply without data."""

from flwr.app import ConfigRecord, Error, Message, MessageType, RecordDict
from flwr.common.constant import ErrorCode

ACTION = "query.secure_fedrec"
"""Type of the messages."""

RECORD = "secure-fedrec"
"""Name of the record that holds them."""

_FIELD = "data"
_SILENT = "client failed"


def record_of(data: bytes) -> ConfigRecord:
    """The record for some bytes."""
    return ConfigRecord({_FIELD: data})


def message_to(node: int, data: bytes, label: str) -> Message:
    """A message for a node."""
    content = RecordDict({RECORD: record_of(data)})
    return Message(content, dst_node_id=node, message_type=ACTION, group_id=label)


def reply_to(message: Message, data: bytes | None) -> Message:
    """A reply with this data; without data, a reply that carries only the marker for that."""
    if data is None:
        error = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=_SILENT)
        return Message(error, reply_to=message)
    return Message(RecordDict({RECORD: record_of(data)}), reply_to=message)


def is_train(message: Message) -> bool:
    """Whether a message asks an app to train."""
    return message.metadata.message_type.partition(".")[0] == MessageType.TRAIN


def data_of(message: Message) -> bytes | None:
    """The bytes of a message; None if it does not carry any."""
    if message.has_error():
        return None
    record = message.content.get(RECORD)
    data = record.get(_FIELD) if isinstance(record, ConfigRecord) else None
    return data if isinstance(data, bytes) else None
