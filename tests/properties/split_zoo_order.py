"""Models that keep who has trained, or the first user's values, where a walk must look twice.

Every entry has the verdict that is due: "refuted", "holds", or "open" (a gap).
"""

import weakref
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from tests.properties.split_zoo import Entry, Factorisation, Shape, case, own


class Trained(Factorisation):
    """Who has trained, in order."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.order: list[int] = []

    def penalty(self, user: int) -> Tensor:
        self.order.append(user)
        return own(self, user).sum() * 0.1 * self.asked(user)  # reads

    def asked(self, user: int) -> bool:
        raise NotImplementedError


class PairEarlier(Trained):
    """Whether user 0 has trained, asked by user 2 only."""

    def asked(self, user: int) -> bool:
        return user == 2 and 0 in self.order


class LowerEarlier(Trained):
    """Whether anybody of a lower number has trained."""

    def asked(self, user: int) -> bool:
        return any(each < user for each in self.order)  # reads


class FirstOfAll(Trained):
    """Whether user 1 was the first of all, asked by user 2 only."""

    def asked(self, user: int) -> bool:
        return user == 2 and self.order[0] == 1


class OwnCount(Trained):
    """How often oneself has trained: a device's own business."""

    def asked(self, user: int) -> bool:
        return self.order.count(user) > 1


class FirstNorm(Factorisation):
    """The first user's norm, kept somewhere."""

    def penalty(self, user: int) -> Tensor:
        if self.kept() is None:
            self.keep(float(own(self, user).detach().norm()))
        kept = self.kept()
        assert kept is not None
        return 0.1 * kept * own(self, user).sum()  # reads

    def kept(self) -> float | None:
        raise NotImplementedError

    def keep(self, norm: float) -> None:
        raise NotImplementedError


class Outer:
    class Inner:
        norm: ClassVar[float | None] = None


class NestedClass(FirstNorm):
    def kept(self) -> float | None:
        return Outer.Inner.norm

    def keep(self, norm: float) -> None:
        Outer.Inner.norm = norm


class Meta(type):
    norm: float | None = None


class WithMeta(metaclass=Meta):
    pass


class OfMetaclass(FirstNorm):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.holder = WithMeta

    def kept(self) -> float | None:
        return type(self.holder).norm

    def keep(self, norm: float) -> None:
        type(self.holder).norm = norm


class Held:
    """Something with an attribute, that lives as long as this module."""

    norm: float | None = None


class OfKey(FirstNorm):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.by_key = {Held(): 1}

    def kept(self) -> float | None:
        return next(iter(self.by_key)).norm

    def keep(self, norm: float) -> None:
        next(iter(self.by_key)).norm = norm


class OfWeakReference(FirstNorm):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        _ALIVE.append(Held())
        self.reference = weakref.ref(_ALIVE[-1])

    def kept(self) -> float | None:
        found = self.reference()
        return None if found is None else found.norm

    def keep(self, norm: float) -> None:
        found = self.reference()
        assert found is not None
        found.norm = norm


_ALIVE: list[Held] = []


class Noted(np.ndarray[Any, Any]):
    norm: float | None = None


class OfArray(FirstNorm):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.noted = np.zeros(1).view(Noted)

    def kept(self) -> float | None:
        return self.noted.norm

    def keep(self, norm: float) -> None:
        self.noted.norm = norm


class InSparse(FirstNorm):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.sparse = torch.tensor([0.0, -1.0, 0.0]).to_sparse().coalesce()

    def kept(self) -> float | None:
        value = float(self.sparse.values()[0])  # reads
        return None if value < 0 else value

    def keep(self, norm: float) -> None:
        self.sparse.values().fill_(norm)


class InMemoryview(FirstNorm):
    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.view = memoryview(bytearray(1))

    def kept(self) -> float | None:
        return None if self.view[0] == 0 else self.view[0] / 16

    def keep(self, norm: float) -> None:
        self.view[0] = min(255, 1 + int(16 * norm))


class Freezes(Factorisation):
    """One user's training freezes a parameter for those after it."""

    def penalty(self, user: int) -> Tensor:
        if user == 1:
            self.bias.requires_grad_(False)
        return torch.zeros(())


class Flagged(Factorisation):
    """Everybody has a private flag, and reads its own."""

    flags: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.register_buffer("flags", torch.arange(shape.users) % 2 == 0)
        self.slope = nn.Parameter(torch.ones(()))

    def penalty(self, user: int) -> Tensor:
        return self.slope * self.flags[user].float() * own(self, user).sum()


ORDER: dict[str, Entry] = {
    "whether an earlier user has trained": (case(PairEarlier), "refuted"),
    "whether anybody of a lower number has": (case(LowerEarlier), "refuted"),
    "who was the first of all": (case(FirstOfAll), "refuted"),
    "how often oneself has trained": (case(OwnCount), "holds"),
    "nested class": (case(NestedClass), "refuted"),
    "metaclass": (case(OfMetaclass), "refuted"),
    "attribute of a key": (case(OfKey), "refuted"),
    "weak reference": (case(OfWeakReference), "refuted"),
    "attribute of an array": (case(OfArray), "refuted"),
    "sparse tensor": (case(InSparse), "refuted"),
    "memoryview": (case(InMemoryview), "refuted"),
    "parameter that a training freezes": (case(Freezes), "refuted"),
    "private flags": (case(Flagged, "users.weight", "flags"), "holds"),
}
