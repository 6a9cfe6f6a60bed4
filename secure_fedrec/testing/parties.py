"""What a driver takes for granted of a protocol's halves: exact, or refused, on any line."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import Carrier, Parcel


class NextRound(Protocol):
    """Runs the next round of one federation, all halves in this process."""

    def __call__(self, *, carrier: Carrier) -> tuple[Collection[int], Any]:
        """Whose inputs are in the result, and the result.

        Args:
            carrier: what stands between the halves (``session.run_in_memory``).

        Raises:
            ProtocolError: the round was aborted.
        """


class PartyContract:
    """The halves of a protocol under every fault of their lines; inherit it and say which.

    Raises:
        AssertionError: by each test, what is not kept.
    """

    def federation(self) -> NextRound:
        """New parties, with identities and all that they keep from round to round."""
        raise NotImplementedError

    def exact(self, clients: Collection[int]) -> Any:
        """What the result has to be where the inputs of these clients are in it, as an array."""
        raise NotImplementedError

    def everybody(self) -> Collection[int]:
        """The clients of a round."""
        raise NotImplementedError

    def test_a_round_ends_in_the_exact_result(self) -> None:
        """Of everybody, and again in the next round."""
        next_round = self.federation()
        for _ in range(2):
            clients, found = next_round(carrier=list)
            _require(set(clients) == set(self.everybody()), f"only {sorted(clients)} are in it")
            self._require_exact(clients, found, "a clean line")

    def test_messages_are_bytes_of_somebody_for_somebody_else(self) -> None:
        """A carrier needs no more than that, and the stage that a message belongs to."""
        for parcel in self._sent():
            _require(type(parcel.data) is bytes, f"{parcel.stage}: no bytes, {type(parcel.data)}")
            _require(parcel.stage.isupper(), f"stage {parcel.stage!r} is not in capitals")
            _require(parcel.sender != parcel.receiver, f"{parcel.sender} sends to itself")

    def test_no_fault_of_a_line_makes_another_result(self) -> None:
        """Every stage: one message or all of them altered, lost, repeated, of the round before."""
        stages = dict.fromkeys(parcel.stage for parcel in self._sent() if parcel.data)
        for stage in stages:
            for name, fault in _FAULTS.items():
                for one in (True, False):
                    line = _Line(stage, fault, one=one)
                    self._struck(line, f"{name} at {stage}, {'one' if one else 'all'}")

    def _struck(self, line: "_Line", where: str) -> None:
        next_round = self.federation()
        next_round(carrier=line)
        line.armed = True
        try:
            clients, found = next_round(carrier=line)
        except ProtocolError:
            pass
        else:
            self._require_exact(clients, found, where)
        _require(line.struck > 0, f"no message was there to be struck: {where}")

    def _sent(self) -> list[Parcel]:
        line = _Line("", list, one=False)
        self.federation()(carrier=line)
        return line.before

    def _require_exact(self, clients: Collection[int], found: Any, where: str) -> None:
        due = np.asarray(self.exact(clients))
        same = np.array_equal(np.asarray(found), due)
        _require(same, f"another result than that of clients {sorted(clients)}: {where}")


_Fault = Callable[[Parcel, Sequence[Parcel]], list[Parcel]]
"""What arrives of a message, given those of its line in the round before."""


def _flipped(place: float) -> _Fault:
    def fault(parcel: Parcel, before: Sequence[Parcel]) -> list[Parcel]:
        data = bytearray(parcel.data)
        data[round(place * (len(data) - 1))] ^= 1
        return [parcel._replace(data=bytes(data))]

    return fault


_FAULTS: dict[str, _Fault] = {
    "the first byte altered": _flipped(0.0),
    "a byte inside altered": _flipped(0.4),
    "the last byte altered": _flipped(1.0),
    "cut short": lambda parcel, before: [parcel._replace(data=parcel.data[:-1])],
    "lost": lambda parcel, before: [],
    "repeated": lambda parcel, before: [parcel, parcel],
    "the round before's": lambda parcel, before: [*before],
    "the round before's beside it": lambda parcel, before: [*before, parcel],
    "rubbish beside it": lambda parcel, before: [parcel._replace(data=b"rubbish"), parcel],
}


class _Line:
    """A carrier that keeps what passes in a first round, and strikes in the next.

    Args:
        stage: whose messages.
        fault: what arrives of them.
        one: strikes one message of the stage, or all.
    """

    def __init__(self, stage: str, fault: Any, *, one: bool) -> None:
        self._stage, self._fault, self._one = stage, fault, one
        self.before: list[Parcel] = []
        self.armed = False
        self.struck = 0

    def __call__(self, sent: Sequence[Parcel]) -> list[Parcel]:
        """What arrives."""
        if not self.armed:
            self.before += sent
            return list(sent)
        arrived: list[Parcel] = []
        for parcel in sent:
            hit = parcel.stage == self._stage and parcel.data and not (self._one and self.struck)
            self.struck += bool(hit)
            arrived += self._fault(parcel, self._earlier(parcel)) if hit else [parcel]
        return arrived

    def _earlier(self, parcel: Parcel) -> list[Parcel]:
        return [each for each in self.before if each[:3] == parcel[:3] and each.data]


def _require(kept: bool, problem: str) -> None:
    if not kept:
        raise AssertionError(problem)
