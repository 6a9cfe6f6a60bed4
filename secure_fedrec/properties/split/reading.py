"""Finds the line that reads a value: two runs are recorded by operations, and compared.

The runs differ in one user's value, or in whether that user has trained. If their results differ,
tracing back the differing tensors leads to the operation that did more than pass the value on. If a
run branches on the value, the last line common to both runs is the branch.
"""

import hashlib
import linecache
import os
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from secure_fedrec.properties.split.trials import raw_bytes

_LIBRARIES: Final = tuple(
    f"{each}{os.sep}" for each in (Path(__file__).parent, sysconfig.get_path("stdlib"))
)
_PACKAGES: Final = f"{os.sep}site-packages{os.sep}"
# Operations that copy whole values; views do as well.
_COPIES: Final = frozenset({"clone", "cat", "stack", "_to_copy", "copy_", "repeat", "detach"})
_NUMBERS: Final = (bool, int, float, complex)

_STREAM: Final = ("torch's generator",)
"""Key of the generator's state, as if it were a tensor."""

_Key: TypeAlias = tuple[Any, ...]
"""Place of a tensor: its storage, and its position in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A line of the code under test.

    Args:
        file: its path.
        number: counted from 1.
        function: that it is part of.
        operation: the operation of torch, "branch", or "return".
        writes: whether it writes values that are not the user's own; otherwise it reads.
    """

    file: str
    number: int
    function: str
    operation: str
    writes: bool = False

    @property
    def text(self) -> str:
        """The line itself; empty where its file cannot be read."""
        return linecache.getline(self.file, self.number).strip()

    def __str__(self) -> str:
        path = Path(self.file)
        shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.name
        return f"{shown}:{self.number} in {self.function}: {self.text} ({self.operation})"


class _Event(NamedTuple):
    """An operation, or a line that was reached.

    Args:
        what: the operation; "" for a line.
        place: (file, line, function), or None where no line of the code under test asked for it.
        inputs: of its tensors, their places and values.
        plain: its other arguments.
        outputs: the values of its results and written tensors afterwards.
        written: their places.
        plain_output: a result that is not a tensor.
        narrows: whether it selects a part of its input.
        hidden: why it does not have a place.
    """

    what: str
    place: tuple[str, int, str] | None
    inputs: tuple[tuple[_Key, bytes], ...] = ()
    plain: tuple[object, ...] = ()
    outputs: tuple[bytes, ...] = ()
    written: tuple[_Key, ...] = ()
    plain_output: tuple[object, ...] = ()
    is_view: bool = False
    narrows: bool = False
    hidden: str = ""


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A context that records computations.

    Args:
        watched: finds a tensor of which is noted when it is first written into, or replaced.
        kept: finds tensors at which tracing ends: what is copied into them has arrived.

    Attributes:
        events: in their order.
        overwrites: the event that first wrote into the watched tensor; None if none did.
    """

    def __init__(
        self,
        watched: Callable[[], Tensor] | None = None,
        kept: Callable[[], Iterable[Tensor]] = tuple,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.events: list[_Event] = []
        self.overwrites: _Event | None = None
        self._watched, self._find_kept = watched, kept
        self._kept: set[object] = set()
        self._before = b""
        self._stream = b""
        self._held: list[Tensor] = []  # so that no other storage gets a number that is known
        self._outermost: FrameType | None = None

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record operations and lines."""
        # The frame of the caller, beyond contextlib: what it calls is under test.
        self._outermost, before = sys._getframe(2), sys.gettrace()
        if self._watched is not None:
            self._before = _digest(self._watched())
        self._stream = _stream()
        self._note_kept()
        sys.settrace(self._trace)
        try:
            with self, _Numbers(self):
                yield
        finally:
            sys.settrace(before)
            self._note_kept()
            self._note_replaced()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run an operation, and note it."""
        kwargs = kwargs or {}
        given = [each for each in tree_flatten((args, kwargs))[0] if each is not None]
        tensors = [each for each in given if isinstance(each, Tensor)]
        inputs = tuple((_key(each), _digest(each)) for each in tensors)
        self._note_replaced()
        self._note_seed()
        stream = self._stream
        answer = func(*args, **kwargs)
        self._stream = _stream()
        draws = self._stream != stream
        results = tree_flatten(answer)[0]
        made = [each for each in results if isinstance(each, Tensor)]
        before = dict(inputs)
        changed = [each for each in tensors if _digest(each) != before[_key(each)]]
        is_view = any(
            each.alias_info is not None and not each.alias_info.is_write
            for each in func._schema.returns
        )
        self._held += [*tensors, *made]
        largest = max((each.numel() for each in tensors), default=0)
        place = self._place()
        event = _Event(
            what=func._schema.name.partition("::")[2],
            place=place,
            inputs=(*inputs, *([(_STREAM, stream)] if draws else [])),
            plain=tuple(each for each in given if isinstance(each, _NUMBERS)),
            outputs=(*map(_digest, (*made, *changed)), *([self._stream] if draws else [])),
            written=(*map(_key, (*made, *changed)), *([_STREAM] if draws else [])),
            plain_output=tuple(each for each in results if isinstance(each, _NUMBERS)),
            is_view=is_view,
            narrows=any(each.numel() < largest for each in made),
            hidden=self._hidden() if place is None else "",
        )
        self.events.append(event)
        if self._watched is not None and self.overwrites is None:
            self.overwrites = event if _digest(self._watched()) != self._before else None
        return answer

    def reads(self, place: int) -> bool:
        """Whether an operation does more than pass a value on."""
        event = self.events[place]
        if event.is_view:
            return event.narrows
        return event.what not in _COPIES or any(key[0] in self._kept for key in event.written)

    def _note_kept(self) -> None:
        """Done at begin and end, since a module may replace a parameter's tensor."""
        tensors = list(self._find_kept())
        self._held += tensors
        self._kept |= {_key(each)[0] for each in tensors}

    def _note_seed(self) -> None:
        """Record that the generator was seeded, which is not an operation."""
        stream = _stream()
        if stream != self._stream:
            place = self.events[-1].place if self.events else None
            seed = (torch.initial_seed(),)
            self.events.append(
                _Event("manual_seed", place, plain=seed, outputs=(stream,), written=(_STREAM,))
            )
        self._stream = stream

    def _note_replaced(self) -> None:
        """Record that the watched tensor was replaced, which is not an operation."""
        if self._watched is None or self.overwrites is not None or not self.events:
            return
        if _digest(self._watched()) != self._before:
            self.overwrites = next((each for each in self.events[::-1] if each.what), None)

    def note_number(self, name: str, tensors: Sequence[Tensor], answer: object) -> None:
        """Record what Python got from some tensors: a number, a list, an array."""
        inputs = tuple((_key(each), _digest(each)) for each in tensors)
        self._held += tensors
        told = (answer.tobytes() if isinstance(answer, np.ndarray) else repr(answer),)
        self.events.append(_Event(name, self._place(), inputs=inputs, plain_output=told))

    def last_writer(self, tensor: Tensor) -> int | None:
        """The event that made a tensor's values, or None."""
        storage = _key(tensor)[0]
        return next(
            (
                place
                for place in range(len(self.events) - 1, -1, -1)
                if not self.events[place].is_view
                and any(key[0] == storage for key in self.events[place].written)
            ),
            None,
        )

    def _place(self) -> tuple[str, int, str] | None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame is not self._outermost:
            if _is_under_test(frame.f_code.co_filename):
                return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
            frame = frame.f_back
        return None

    def _hidden(self) -> str:
        """The code that calls an operation, if no line of it can be named."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not self._outermost and frame is not None:
            file = frame.f_code.co_filename
            if _is_under_test(file):
                return ""
            if file.startswith("<"):
                return f"in {file}, which has no file"
            if _PACKAGES in file and f"{_PACKAGES}torch{os.sep}" not in file:
                return f"in {Path(file).name} of an installed package"
            frame = frame.f_back
        return ""

    def _trace(self, frame: FrameType, _event: str, _argument: object) -> Any:
        return self._trace_line if _is_under_test(frame.f_code.co_filename) else None

    def _trace_line(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            self._note_seed()
            code = frame.f_code
            self.events.append(_Event("", (code.co_filename, frame.f_lineno, code.co_name)))
        return self._trace_line


class _Numbers(TorchFunctionMode):
    """Tells a recorder about values that leave torch, not all of which operations show."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Run a function of torch, and record what it returns to Python."""
        answer = func(*args, **(kwargs or {}))
        tensors = [each for each in args if isinstance(each, Tensor)]
        if tensors and isinstance(answer, (*_NUMBERS, list, np.ndarray)):
            told = answer if isinstance(answer, list) else []
            if not any(isinstance(each, Tensor) for each in told):
                self._recorder.note_number(getattr(func, "__name__", "read"), tensors, answer)
        return answer


def line_of(event: _Event | None, *, writes: bool = False) -> Line | None:
    """The line that called an operation."""
    if event is None or event.place is None:
        return None
    file, number, function = event.place
    operation = event.what or "branch"
    return Line(file=file, number=number, function=function, operation=operation, writes=writes)


class Allowed(NamedTuple):
    """Allowed uses of a value, for which no line is reported.

    Args:
        own: events of the first run whose results belong to the owner and depend only on its
            values.
        shared: events that end in results that may depend on all users' values.
        foreign: tensors that are other users'.
    """

    own: Sequence[int | None] = ()
    shared: Sequence[int | None] = ()
    foreign: Sequence[Tensor] = ()


def reading_line(
    one: Recorder, other: Recorder, ends: Iterable[int | None], allowed: Allowed | None = None
) -> Line | str | None:
    """The line that reads the difference between two runs, or why no line can be named.

    Args:
        one: a run.
        other: the run that differs.
        ends: events of the first run whose results should have been the same, in their order.
        allowed: for a rule, the allowed uses of the value.
    """
    parted = next(
        (
            place
            for place, pair in enumerate(zip(one.events, other.events, strict=False))
            if pair[0][:2] != pair[1][:2]
        ),
        min(len(one.events), len(other.events)),
    )
    runs = _Runs(one.events[:parted], other.events[:parted])
    lines = [each for each in runs.one if each.place is not None]
    differing = [end for end in ends if end is not None and end < parted and runs.differs(end)]
    whole = parted == len(one.events) == len(other.events)
    branch = line_of(lines[-1]._replace(what="")) if lines and not whole else None
    if differing:
        end: int | None = differing[0]
    else:
        # A branch in Python code: on a number read from a tensor, or on Python state.
        end = runs.last_number_that_differs()
        if end is None and branch is not None:
            return branch
    if end is None:
        found = [place for place in range(parted) if runs.differs(place) and one.reads(place)]
    else:
        found = sorted(runs.way_back(end))
    if allowed is not None:
        spared = runs.spared(allowed)
        found = [each for each in found if each not in spared]
    placed = [each for each in found if runs.one[each].place is not None]
    readers = [each for each in placed if one.reads(each)] or placed
    if readers:
        return line_of(runs.one[readers[0]])
    # If a rule returns the update of another user, the path ends at the line that returns it.
    ended = [each for each in lines if not each.what]
    if allowed is not None and ended:
        return line_of(ended[-1]._replace(what="return"))
    hidden = next((runs.one[each].hidden for each in found if runs.one[each].hidden), "")
    return (
        hidden or "outside the lines that were followed: in another thread, or not in Python code"
    )


@dataclass(frozen=True, slots=True)
class _Runs:
    """Two runs up to their first different operation."""

    one: Sequence[_Event]
    other: Sequence[_Event]

    def differs(self, place: int) -> bool:
        """Whether an operation has different results in both runs."""
        one, other = self.one[place], self.other[place]
        return (one.outputs, one.plain_output) != (other.outputs, other.plain_output)

    def last_number_that_differs(self, before: int | None = None) -> int | None:
        """The last operation that returned another plain number."""
        for place in range((len(self.one) if before is None else before) - 1, -1, -1):
            if self.one[place].plain_output != self.other[place].plain_output:
                return place
        return None

    def way_back(self, end: int, *, through_python: bool = True) -> set[int]:
        """All operations with differing results on the way to an end.

        Args:
            end: an operation.
            through_python: whether a number that Python got may be what it chose a tensor by.
        """
        found: set[int] = set()
        waiting = [end]
        while waiting:
            place = waiting.pop()
            if place not in found and self.differs(place):
                found.add(place)
                waiting += self._before(place, through_python)
        return found

    def spared(self, allowed: Allowed) -> set[int]:
        """Operations on a value alone that end in its owner's results; a rule may do them."""
        foreign = {_key(each)[0] for each in allowed.foreign}
        mixes: set[int] = set()
        for place, event in enumerate(self.one):
            if any(key[0] in foreign for key, _ in event.inputs):
                mixes.add(place)
                foreign |= {key[0] for key in event.written}
        own, shared = (
            {
                place
                for end in ends
                if end is not None and end < len(self.one)
                for place in self.way_back(end, through_python=False)
            }
            for ends in (allowed.own, allowed.shared)
        )
        return (own - mixes) | shared

    def _before(self, place: int, through_python: bool) -> Iterator[int]:
        one, other = self.one[place], self.other[place]
        pairs = zip(one.inputs, other.inputs, strict=False)
        keys = [key for (key, held), (_, there) in pairs if held != there]
        makers = [maker for key in keys for maker in self._makers(key, place)]
        yield from makers
        if not through_python:
            return
        # A tensor was chosen, or a number passed on, in Python.
        chosen = makers and not any(self.differs(maker) for maker in makers)
        if chosen or (not keys and one.plain != other.plain):
            number = self.last_number_that_differs(place)
            if number is not None:
                yield number

    def _makers(self, key: _Key, before: int) -> Iterator[int]:
        """The last operation that wrote there, and the view that was taken of it."""
        view = False
        for place in range(before - 1, -1, -1):
            event = self.one[place]
            if event.is_view and not view and key in event.written:
                view = True
                yield place
            elif not event.is_view and any(each[0] == key[0] for each in event.written):
                yield place
                if key in event.written:  # written as a whole, not in part
                    return


@cache
def _is_under_test(file: str) -> bool:
    if file.startswith("<"):  # generated code, except cells of a notebook
        return file.startswith("<ipython")
    return _PACKAGES not in file and not file.startswith(_LIBRARIES)


def _stream() -> bytes:
    # What is looked at here must not become an event.
    with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
        return torch.default_generator.get_state().numpy().tobytes()


def _key(tensor: Tensor) -> _Key:
    try:
        storage = tensor.untyped_storage()._cdata
        return storage, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())
    except (NotImplementedError, RuntimeError):  # sparse tensors have none
        return id(tensor), 0, tuple(tensor.shape), ()


def _digest(tensor: Tensor) -> bytes:
    try:
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            values = raw_bytes(tensor.to_dense() if tensor.layout is not torch.strided else tensor)
            return hashlib.blake2b(values.numpy().data, digest_size=8).digest()
    except (NotImplementedError, RuntimeError):
        return b""
