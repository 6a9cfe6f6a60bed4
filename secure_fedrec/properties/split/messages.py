"""What crosses between devices and server while private parameters stay home, as bytes."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from secure_fedrec.properties.split.aggregation import Summary
from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.split.trials import raw_bytes

SERVER = -1
"""The server as an end of a message; users count from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitMessage:
    """One message.

    Args:
        round: in which it was sent.
        sender: user, or ``SERVER``.
        receiver: user, or ``SERVER``.
        names: the parameters in it, in their order.
        payload: their values, end to end, as they lie in memory.
        summaries: summaries of data in it, by user.
    """

    round: int
    sender: int
    receiver: int
    names: tuple[str, ...] = ()
    payload: bytes = b""
    summaries: Mapping[int, Summary] = field(default_factory=dict)

    def content(self) -> bytes:
        """Every byte of it."""
        numbers = [
            struct.pack("<qd", user, value)
            for user, summary in sorted(self.summaries.items())
            for _, value in sorted(summary.items())
        ]
        return self.payload + b"".join(numbers)


def encode(values: Values) -> bytes:
    """Tensors as bytes, end to end."""
    return b"".join(raw_bytes(value).cpu().numpy().tobytes() for value in values.values())


def decode(payload: bytes, like: Values) -> dict[str, Tensor]:
    """The tensors again; ``like`` has their names, shapes and types, in order.

    Raises:
        ValueError: the payload has another length.
    """
    due = sum(value.numel() * value.element_size() for value in like.values())
    if len(payload) != due:
        raise ValueError(f"a payload of {due} bytes is due, got {len(payload)}")
    values: dict[str, Tensor] = {}
    start = 0
    for name, old in like.items():
        stop = start + old.numel() * old.element_size()
        part = torch.tensor(list(payload[start:stop]), dtype=torch.uint8)
        values[name] = part.view(old.dtype).reshape(old.shape).to(old.device)
        start = stop
    return values
