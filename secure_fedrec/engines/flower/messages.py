"""Our bytes in Flower's messages: one field, and a reply that says nothing where there is none."""

from flwr.app import ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode

ACTION = "query.secure_fedrec"
"""Type of the messages."""

_RECORD, _FIELD = "secure-fedrec", "data"
_SILENT = "client failed"


def message_to(node: int, data: bytes, label: str) -> Message:
    """A message for a node."""
    content = RecordDict({_RECORD: ConfigRecord({_FIELD: data})})
    return Message(content, dst_node_id=node, message_type=ACTION, group_id=label)


def reply_to(message: Message, data: bytes | None) -> Message:
    """A reply; without data one that says that there is none, and nothing else."""
    if data is None:
        error = Error(code=ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason=_SILENT)
        return Message(error, reply_to=message)
    return Message(RecordDict({_RECORD: ConfigRecord({_FIELD: data})}), reply_to=message)


def data_of(message: Message) -> bytes | None:
    """The bytes of a message; None if there are none."""
    if message.has_error():
        return None
    record = message.content.get(_RECORD)
    data = record.get(_FIELD) if isinstance(record, ConfigRecord) else None
    return data if isinstance(data, bytes) else None
