"""Which parameters of a torch model are federated and which stay home.

FURL divides the parameters of any model in two (section 3): *federated* ones w_f, which every
client trains and the server averages, and *private* ones w_p, of which every client has its own.
Here a parameter is private if its name matches a pattern, and federated otherwise. Each part is
exchanged with the rest of the toolkit as one float64 vector: a float64 holds every value of the
narrower formats, so a round trip changes no bit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import combinations

from secure_fedrec import needs_torch  # noqa: F401 - before what it brings

# isort: split
import numpy as np
import torch
from torch import nn

from secure_fedrec.core.arrays import FloatArray
from secure_fedrec.errors import ConfigError

_EXACT_IN_FLOAT64 = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Where one parameter lies in the vector of its part.

    Args:
        name: as in ``model.named_parameters()``.
        shape: shape of the parameter.
        start: first position.
        stop: position after the last.
    """

    name: str
    shape: tuple[int, ...]
    start: int
    stop: int


class ParameterSplit:
    """The two parts of the parameters of a model; holds names and shapes, no values.

    Attributes:
        federated: segments of w_f, in the order of ``model.named_parameters()``.
        private: segments of w_p.
    """

    __slots__ = ("federated", "private")

    def __init__(self, federated: Sequence[Segment], private: Sequence[Segment]) -> None:
        self.federated = tuple(federated)
        self.private = tuple(private)

    @classmethod
    def of(cls, model: nn.Module, *, private: Sequence[str] | None) -> "ParameterSplit":
        """Part the parameters of a model.

        Args:
            model: any module whose whole state is in its parameters.
            private: patterns as in file names, e.g. ``("user_embedding.*",)``; matching parameters
                are private. None federates every parameter: plain Federated Averaging.

        Raises:
            ConfigError: there are no patterns, one matches nothing, no parameter is left to
                federate, or the model has state that cannot be parted: a tensor that is federated
                under one name and private under another, buffers, or values a float64 cannot hold.
        """
        if private is None:
            return cls._part(model, set())
        names = [name for name, _ in model.named_parameters(remove_duplicate=False)]
        if not private:
            raise ConfigError("model.private", tuple(private), "names no private parameter", names)
        for pattern in private:
            if not any(fnmatchcase(name, pattern) for name in names):
                raise ConfigError("model.private", pattern, "matches no parameter", names)
        kept = {name for name in names if any(fnmatchcase(name, each) for each in private)}
        if len(kept) == len(names):
            raise ConfigError(
                "model.private",
                tuple(private),
                "matches every parameter, so none is federated",
                names,
            )
        return cls._part(model, kept)

    @classmethod
    def _part(cls, model: nn.Module, kept: set[str]) -> "ParameterSplit":
        _require_parameters_only(model)
        _require_untied(model, kept)
        once = list(model.named_parameters())  # a tensor tied within a part appears once
        return cls(
            _segments((name, weight) for name, weight in once if name not in kept),
            _segments((name, weight) for name, weight in once if name in kept),
        )

    @property
    def n_federated(self) -> int:
        """Number of federated values."""
        return self.federated[-1].stop if self.federated else 0

    @property
    def n_private(self) -> int:
        """Number of private values."""
        return self.private[-1].stop if self.private else 0

    def read_federated(self, model: nn.Module) -> FloatArray:
        """w_f of the model: float64[n_federated]."""
        return _read(model, self.federated)

    def read_private(self, model: nn.Module) -> FloatArray:
        """w_p of the model: float64[n_private]."""
        return _read(model, self.private)

    def write_federated(self, model: nn.Module, values: FloatArray) -> None:
        """Set w_f in place; a narrower parameter rounds to its nearest value.

        Raises:
            ValueError: the number of values is wrong.
        """
        _write(model, self.federated, values)

    def write_private(self, model: nn.Module, values: FloatArray) -> None:
        """Set w_p in place; a narrower parameter rounds to its nearest value.

        Raises:
            ValueError: the number of values is wrong.
        """
        _write(model, self.private, values)


def _segments(parameters: Iterable[tuple[str, nn.Parameter]]) -> list[Segment]:
    found: list[Segment] = []
    for name, weight in parameters:
        start = found[-1].stop if found else 0
        stop = start + weight.numel()
        found.append(Segment(name=name, shape=tuple(weight.shape), start=start, stop=stop))
    return found


def _read(model: nn.Module, segments: Sequence[Segment]) -> FloatArray:
    values = np.empty(segments[-1].stop if segments else 0)
    for segment in segments:
        weight = model.get_parameter(segment.name).detach()
        flat = weight.to("cpu", torch.float64).reshape(-1)
        values[segment.start : segment.stop] = flat.numpy()
    return values


def _write(model: nn.Module, segments: Sequence[Segment], values: FloatArray) -> None:
    size = segments[-1].stop if segments else 0
    if values.shape != (size,):
        raise ValueError(f"expected {size} values, got an array of shape {values.shape}")
    whole = torch.from_numpy(np.require(values, np.float64, ["C", "W"]))
    with torch.no_grad():
        for segment in segments:
            part = whole[segment.start : segment.stop].reshape(segment.shape)
            model.get_parameter(segment.name).copy_(part)


def _require_parameters_only(model: nn.Module) -> None:
    parameters = dict(model.named_parameters(remove_duplicate=False))
    others = sorted(model.state_dict().keys() - parameters.keys())
    if others:
        # On a simulator one module serves all clients: what it keeps besides would pass from one
        # client to the next, past the server and past every protection.
        raise ConfigError(
            "model",
            others,
            "state besides the parameters would pass from client to client; build the model "
            "without "
            "it (e.g. track_running_stats=False), or register constants with persistent=False",
        )
    for name, weight in parameters.items():
        if weight.dtype not in _EXACT_IN_FLOAT64:
            raise ConfigError(
                "model", name, f"has dtype {weight.dtype}", [str(d) for d in _EXACT_IN_FLOAT64]
            )


def _require_untied(model: nn.Module, kept: set[str]) -> None:
    weights = model.named_parameters(remove_duplicate=False)
    for (name, weight), (other, twin) in combinations(list(weights), 2):
        if (name in kept) != (other in kept) and _overlap(weight, twin):
            home, shared = (name, other) if name in kept else (other, name)
            raise ConfigError(
                "model.private",
                home,
                f"is the same tensor as the federated {shared}: it would leave the client with it",
            )


def _overlap(one: nn.Parameter, other: nn.Parameter) -> bool:
    if one is other:
        return True
    if one.untyped_storage().data_ptr() != other.untyped_storage().data_ptr():
        return False
    (start, stop), (begin, end) = _extent(one), _extent(other)
    return start < end and begin < stop


def _extent(weight: nn.Parameter) -> tuple[int, int]:
    """First byte of the storage that a parameter uses, and the byte after its last."""
    if not weight.numel():
        return 0, 0
    steps = zip(weight.shape, weight.stride(), strict=True)
    last = sum((int(size) - 1) * int(stride) for size, stride in steps)
    first = int(weight.storage_offset())
    return first * weight.element_size(), (first + last + 1) * weight.element_size()
