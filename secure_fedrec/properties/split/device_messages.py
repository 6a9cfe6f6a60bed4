"""The messages between devices and server while private parameters stay home, as bytes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from secure_fedrec.properties.split.aggregation import Summary
from secure_fedrec.properties.split.model import Values
from secure_fedrec.properties.split.trials import raw_bytes

SERVER = -1
"""Number of the server as sender or receiver; users count from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitMessage:
    """One message.

    Args:
        round: in which it was sent.
        sender: user, or ``SERVER``.
        receiver: user, or ``SERVER``.
        names: the parameters in it, in their order.
        payload: bytes of their values, one after the other.
        summaries: summaries of data in it, by user.
    """

    round: int
    sender: int
    receiver: int
    names: tuple[str, ...] = ()
    payload: bytes = b""
    summaries: Mapping[int, Summary] = field(default_factory=dict)


def encode(values: Values) -> bytes:
    """Tensors as bytes, end to end."""
    return b"".join(raw_bytes(value).cpu().numpy().tobytes() for value in values.values())


def decode(payload: bytes, like: Values) -> dict[str, Tensor]:
    """The tensors again; ``like`` has their names, shapes and types, in order.

    Raises:
        ValueError: the payload has another length.
    """
    sizes = [value.numel() * value.element_size() for value in like.values()]
    if len(payload) != sum(sizes):
        raise ValueError(f"a payload of {sum(sizes)} bytes is due, got {len(payload)}")
    parts = torch.split(torch.tensor(list(payload), dtype=torch.uint8), sizes)
    # Copied, since a view as another type has to be aligned.
    return {
        name: part.clone().view(old.dtype).reshape(old.shape).to(old.device)
        for part, (name, old) in zip(parts, like.items(), strict=True)
    }
