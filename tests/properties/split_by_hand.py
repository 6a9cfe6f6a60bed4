"""The smallest run of a violation, repeated in plain torch from what the report says of it."""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor, nn

from secure_fedrec.properties.split import Violation
from secure_fedrec.properties.split.memory import Memory
from secure_fedrec.properties.split.report import Smallest
from tests.properties.split_zoo import Case, Shape

_TRIES = 12
_SCALES = (2.0, 0.1, 0.5, 20.0)
_KINDS: dict[str, Callable[[Tensor, Tensor, torch.Generator], Tensor]] = {
    "normal": lambda old, _mine, draw: torch.randn(old.shape, generator=draw, dtype=old.dtype) * 2,
    "large": lambda old, _mine, draw: (
        torch.randn(old.shape, generator=draw, dtype=old.dtype) * 1000
    ),
    "zero": lambda old, _mine, _draw: torch.zeros_like(old),
    "positive": lambda old, _mine, draw: torch.rand(old.shape, generator=draw, dtype=old.dtype),
    "negative": lambda old, _mine, draw: -torch.rand(old.shape, generator=draw, dtype=old.dtype),
    "near": lambda _old, mine, draw: (
        mine + torch.randn(mine.shape, generator=draw, dtype=mine.dtype) * 1e-4
    ),
    "multiple": lambda _old, mine, _draw: mine * 1.5,
    "opposite": lambda _old, mine, _draw: -mine,
    "permuted": lambda _old, mine, _draw: mine.flatten().flip(0).reshape(mine.shape),
}
_OTHERS = (*_KINDS, "copy", "unchanged", "across")

Bits = list[list[str]]


def shows_by_hand(build: Callable[[Shape], Case], shape: Shape, violation: Violation) -> bool:
    """Whether some values of parameters show a violation in the run that the report names."""
    assert violation.smallest is not None
    assert violation.owner is not None
    writes = "overwrites" in violation.reaches or "writes into" in violation.reaches

    @lru_cache
    def ends(seed: int, others: str, scale: float, kind: str = "") -> tuple[Bits, bool]:
        found = build(shape)
        memory = Memory(found.model, found.loss)  # globals would last until the next run
        try:
            return _Hand(found, violation, seed, scale, others).run(kind)
        finally:
            memory.restore()

    for seed, others, kind, scale in _tries():
        one, wrote = ends(seed, others, scale)
        if wrote if writes else one != ends(seed, others, scale, kind)[0]:
            return True
    return False


def _tries() -> Iterator[tuple[int, str, str, float]]:
    """Seed, kinds of others' and of the owner's values, scale; first what shows most violations."""
    likely = [("normal", kind) for kind in _OTHERS] + [(kind, "normal") for kind in _OTHERS]
    for seed, (others, kind), scale in product(range(6), likely, _SCALES):
        yield seed, others, kind, scale
    yield from product(range(_TRIES), _OTHERS, _OTHERS, _SCALES)


class _Hand:
    """A fresh model with random values, and trainings on it."""

    def __init__(
        self, found: Case, violation: Violation, seed: int, scale: float, others: str
    ) -> None:
        self._case, self._violation, self._seed = found, violation, seed
        self._draw = torch.Generator().manual_seed(seed)
        found.model.train()
        self._handed_over = _copies(found.model)
        with torch.no_grad():
            for weight in found.model.parameters():
                noise = torch.randn(weight.shape, generator=self._draw, dtype=weight.dtype)
                weight.copy_(noise * scale)
            users = range(shape_users(found))
            reader = violation.reader
            for user, name in product(users, found.private):
                if user != reader and others != "normal":
                    self._redraw(user, name, others)

    def run(self, kind: str) -> tuple[Bits, bool]:
        """What the last training ends with, and whether it wrote what is not its own.

        The first run of a violation has no kind: the owner's values do not change.
        """
        smallest, second = self._violation.smallest, bool(kind)
        assert smallest is not None
        moves = second and not smallest.left_out
        if moves and "owner's" not in smallest.changes:
            self._change(kind)
        for place, user in enumerate(smallest.trained_before):
            if place == smallest.changed_after:
                self._change_meanwhile(smallest, kind, moves=moves)
            if second or place not in smallest.left_out:
                state = _copies(self._case.model)
                self._train(user, smallest)
                _restore(self._case.model, state)
        if smallest.changed_after == len(smallest.trained_before):
            self._change_meanwhile(smallest, kind, moves=moves)
        state = _copies(self._case.model)
        ends = self._train(smallest.trains, smallest)
        return ends, self._wrote(state)

    def _change_meanwhile(self, smallest: Smallest, kind: str, *, moves: bool) -> None:
        if moves and "owner's" in smallest.changes:
            self._change(kind)
        with torch.no_grad():
            draw = torch.Generator().manual_seed(self._seed + 99)
            private = {id(each) for each in self._private()}
            if "federated" in smallest.changes:
                for each in self._case.model.parameters():
                    if id(each) not in private:
                        each.copy_(torch.randn(each.shape, generator=draw, dtype=each.dtype))
            if "own" in smallest.changes:
                for name in self._case.private:
                    for part in self._own(smallest.trains, name):
                        part.copy_(torch.randn(part.shape, generator=draw, dtype=part.dtype))

    def _change(self, kind: str) -> None:
        owner = self._violation.owner
        assert owner is not None
        with torch.no_grad():
            self._redraw(owner, self._violation.parameter, kind)

    def _redraw(self, user: int, name: str, kind: str) -> None:
        """Give a user other values; most kinds are made of the reader's."""
        reader = self._violation.reader
        parts = [self._own(each, name) for each in (user, reader)]
        parts.append(self._own(user, name, self._handed_over))
        for part, mine, old in zip(*parts, strict=True):
            if kind in ("unchanged", "copy"):
                part.copy_(old if kind == "unchanged" else mine)
            elif kind == "across":
                part.copy_(self._across(part))
            elif part.is_floating_point() or part.is_complex():
                part.copy_(_KINDS[kind](part, mine, self._draw))
            else:  # integers
                part.copy_(torch.randint(1, 1000, part.shape, generator=self._draw))

    def _across(self, part: Tensor) -> Tensor:
        """A row of any tensor, of the same length."""
        tensors = self._case.model.state_dict(keep_vars=True).values()
        rows = [row for each in tensors if each.dim() == 2 for row in each.detach()]
        like = [row for row in rows if row.shape == part.shape and row.dtype == part.dtype]
        chosen = int(torch.randint(len(like) or 1, (), generator=self._draw))
        return like[chosen].clone() if like else part.detach().clone()

    def _own(self, user: int, pattern: str, state: dict[str, Tensor] | None = None) -> list[Tensor]:
        """A user's part of private tensors."""
        tensors = self._case.model.state_dict(keep_vars=True) if state is None else state
        rows = re.fullmatch(r"(.*)\[(\d*):\d*\]", pattern)
        name, first = (rows[1], int(rows[2] or 0)) if rows else (pattern, 0)
        expression = re.escape(name.replace("{user}", str(user))).replace(r"\*", ".*")
        found = [tensors[each] for each in tensors if re.fullmatch(expression, each)]
        whole = [each.detach() for each in found]
        return whole if "{user}" in name else [each[first + user] for each in whole]

    def _train(self, user: int, smallest: Smallest) -> Bits:
        model, loss = self._case.model, self._case.loss
        if hasattr(loss, "begin"):
            loss.begin(model)
        weights = [each for each in model.parameters() if each.requires_grad]
        optimizer = torch.optim.SGD(weights, lr=0.01, momentum=0.9)
        draw = torch.Generator().manual_seed(1000 * self._seed + user)
        torch.default_generator.manual_seed(user)  # of all devices takes far longer
        ends: Bits = []
        for _ in range(smallest.steps):
            batch = self._case.batches()(user, draw)
            batch = {name: column[list(smallest.places)] for name, column in batch.items()}
            optimizer.zero_grad()
            value = loss(model, user, batch)
            value.backward()  # type: ignore[no-untyped-call]
            ends += [_bits(value), *self._gradients(user)]
            optimizer.step()
        return [*ends, *([_bits(each) for each in self._mine(user)])]

    def _mine(self, user: int) -> Iterator[Tensor]:
        """What is everybody's, and what is a user's own."""
        model = self._case.model
        private = {id(each) for each in self._private()}
        yield from (each for each in model.parameters() if id(each) not in private)
        for name in self._case.private:
            yield from self._own(user, name)

    def _gradients(self, user: int) -> Iterator[list[str]]:
        private = {id(each) for each in self._private()}
        for each in self._case.model.parameters():
            if id(each) not in private and each.grad is not None:
                yield _bits(each.grad)

    def _private(self) -> list[Tensor]:
        tensors = dict(self._case.model.state_dict(keep_vars=True))
        names = [re.sub(r"\[.*\]", "", name) for name in self._case.private]
        expressions = [re.escape(each).replace(r"\*", ".*") for each in names]
        expressions = [each.replace(r"\{user\}", r"\d+") for each in expressions]
        return [
            tensor
            for name, tensor in tensors.items()
            if any(re.fullmatch(each, name) for each in expressions)
        ]

    def _wrote(self, before: dict[str, Tensor]) -> bool:
        """Whether a buffer of all, or the owner's value, is another."""
        smallest, owner, name = self._violation.smallest, *self._violation_owner()
        assert smallest is not None
        tensors, private = self._case.model.state_dict(keep_vars=True), self._private()
        mine = {id(each) for each in private}
        buffers = [n for n, _ in self._case.model.named_buffers() if id(tensors[n]) not in mine]
        if any(_bits(before[each]) != _bits(tensors[each]) for each in buffers):
            return True
        then = zip(self._own(owner, name, before), self._own(owner, name), strict=True)
        return smallest.trains != owner and any(_bits(old) != _bits(new) for old, new in then)

    def _violation_owner(self) -> tuple[int, str]:
        assert self._violation.owner is not None
        return self._violation.owner, self._violation.parameter


def shape_users(found: Case) -> int:
    """Of a model of the zoo."""
    return len(found.model.users.weight)  # type: ignore[union-attr,arg-type]


def _bits(tensor: Tensor) -> list[str]:
    flat = torch.view_as_real(tensor.detach()) if tensor.is_complex() else tensor.detach()
    return [repr(each) for each in flat.to_dense().flatten().tolist()]


def _copies(model: nn.Module) -> dict[str, Tensor]:
    return {name: each.detach().clone() for name, each in model.state_dict().items()}


def _restore(model: nn.Module, state: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in model.state_dict(keep_vars=True).items():
            tensor.copy_(state[name])
