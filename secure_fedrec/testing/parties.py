"""What a driver assumes of a protocol's halves: rounds are exact or refused, under any fault."""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Protocol

import numpy as np

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import Carrier, Parcel, Role
from secure_fedrec.testing.said import require


class NextRound(Protocol):
    """Runs the next round of one federation, all halves in this process."""

    def __call__(self, *, carrier: Carrier) -> tuple[Collection[int], Any]:
        """The clients whose inputs are in the result, and the result.

        Args:
            carrier: carries messages between the halves (``session.run_in_memory``).

        Raises:
            ProtocolError: the round was aborted; the next one must be possible all the same.
        """


class PartyContract:
    """The halves of a protocol under every fault of messages; inherit it and name them.

    Rounds count from 1, aborted ones too. Clients' inputs must differ from round to round and from
    client to client; otherwise a result would not show whose inputs are in it.

    Raises:
        AssertionError: by each test; says which part of the contract is violated.
    """

    alterations: ClassVar[int] = 8
    """Rounds of each stage in which bits are altered, at different places."""

    def federation(self) -> NextRound:
        """New parties, with identities and all that they keep from round to round."""
        raise NotImplementedError("PartyContract: say which `federation()` is tested")

    def exact(self, clients: Collection[int], round_: int) -> Any:
        """The exact result of a round with the inputs of these clients."""
        raise NotImplementedError("PartyContract: define `exact(clients, round_)`")

    def everybody(self) -> Collection[int]:
        """The clients of a round."""
        raise NotImplementedError("PartyContract: define `everybody()`")

    def test_results_tell_whose_inputs_are_in_them(self) -> None:
        """The result shows its round and clients; otherwise the other tests prove little."""
        everybody = set(self.everybody())
        those = [everybody, *(everybody - {client} for client in everybody)]
        dues = [np.asarray(self.exact(some, round_)) for some in those for round_ in (1, 2)]
        distinct = {due.tobytes() for due in dues}
        require(len(distinct) == len(dues), "inputs are the same in two rounds, or of two clients")

    def test_a_round_ends_in_the_exact_result(self) -> None:
        """A round with all clients is exact, and so is the next one."""
        rounds = _Rounds(self)
        for _ in range(2):
            rounds.clean("a clean line")

    def test_messages_are_bytes_of_somebody_for_somebody_else(self) -> None:
        """A carrier needs only that, and the stage that a message belongs to."""
        for parcel in _Rounds(self).clean("a clean line"):
            require(type(parcel.data) is bytes, f"{parcel.stage}: no bytes, {type(parcel.data)}")
            require(parcel.stage.isupper(), f"stage {parcel.stage!r} is not in capitals")
            require(parcel.sender != parcel.receiver, f"{parcel.sender} sends to itself")

    def test_no_fault_of_a_line_makes_another_result(self) -> None:
        """Every stage, in each direction: the first or the last message, or all; the next is exact.

        Altered, cut, extended, lost, repeated, of an earlier round, of another stage or sender.
        """
        rounds = _Rounds(self)
        sent = rounds.clean("a clean line")
        for line in dict.fromkeys(map(_line_of, filter(_has_data, sent))):
            stage, sender, receiver = line
            way = f"{sender.name.lower()} to {receiver.name.lower()}"
            for number, (name, fault) in enumerate(_FAULTS.items()):
                for which in ("all", _ENDS[number % 2]):
                    where = f"{name} at {stage}, {which}, {way}"
                    rounds.struck(line, fault, which, where)
                rounds.clean(f"the round after {where}")
            for draw in range(self.alterations):
                where = f"bits altered at {stage}, draw {draw}, {way}"
                rounds.struck(line, _altered(draw), _ENDS[draw % 2], where)
            rounds.clean(f"the round after {where}")


_Line = tuple[str, Role, Role]
"""A stage in one direction: a question and its answers may have one name."""


def _line_of(parcel: Parcel) -> _Line:
    return parcel.stage, parcel.sender.role, parcel.receiver.role


def _has_data(parcel: Parcel) -> bool:
    return parcel.data != b""  # otherwise it is a prompt


_Fault = Callable[[Parcel, Sequence[Sequence[Parcel]]], list[bytes]]
"""The messages that arrive for a sent one, given those of the last rounds, this one last."""


def _altered(draw: int, *places: float) -> _Fault:
    """A bit turned at these places from 0 to 1, or at one or two that are drawn."""
    drawn = places or np.random.default_rng(draw).random(1 + draw % 2).tolist()

    def fault(parcel: Parcel, rounds: Sequence[Sequence[Parcel]]) -> list[bytes]:
        data = bytearray(parcel.data)
        for place in {round(place * (len(data) - 1)) for place in drawn}:
            data[place] ^= 1 << draw % 8
        return [bytes(data)]

    return fault


def _of_rounds_ago(ago: int, parcel: Parcel, rounds: Sequence[Sequence[Parcel]]) -> list[bytes]:
    """What the same sender sent to the same receiver at the same stage."""
    then = rounds[-1 - ago] if ago < len(rounds) else ()
    return [each.data for each in then if each[:3] == parcel[:3] and each.data]


def _another(parcel: Parcel, rounds: Sequence[Sequence[Parcel]], *, stage: bool) -> list[bytes]:
    """The newest message of another stage, or of this one between others."""
    sent = [each for each in chain(*rounds) if each.data]
    others = [each for each in sent if (each.stage != parcel.stage) == stage]
    return [each.data for each in others if stage or each[:2] != parcel[:2]][-1:]


_FAULTS: dict[str, _Fault] = {
    "a bit altered in the first byte": _altered(0, 0.0),
    "a bit altered in a byte inside": _altered(6, 0.4),
    "a bit altered in the last byte": _altered(0, 1.0),
    "bits altered inside and at the end": _altered(2, 0.6, 1.0),
    "cut short": lambda parcel, rounds: [parcel.data[:-1]],
    "emptied": lambda parcel, rounds: [b""],
    "a byte longer": lambda parcel, rounds: [parcel.data + bytes(1)],
    "doubled": lambda parcel, rounds: [parcel.data * 2],
    "lost": lambda parcel, rounds: [],
    "repeated": lambda parcel, rounds: [parcel.data] * 2,
    "the previous round's message": partial(_of_rounds_ago, 1),
    "the previous round's message beside it": lambda p, rounds: [
        *_of_rounds_ago(1, p, rounds),
        p.data,
    ],
    "of two rounds before": partial(_of_rounds_ago, 2),
    "another's of this stage": partial(_another, stage=False),
    "one of another stage": partial(_another, stage=True),
    "rubbish beside it": lambda parcel, rounds: [b"rubbish", parcel.data],
}
_ENDS = ("the last", "the first")


class _Rounds:
    """One federation, round after round."""

    def __init__(self, contract: PartyContract) -> None:
        self._contract, self._next, self._number = contract, contract.federation(), 0
        self._sent: deque[list[Parcel]] = deque(maxlen=3)

    def clean(self, where: str) -> list[Parcel]:
        """The messages of a round that must end exactly, with all clients."""
        clients, why = self._run(lambda sent: sent, where)
        require(clients == set(self._contract.everybody()), f"only {clients} in it{why}: {where}")
        return self._sent[-1]

    def struck(self, of: _Line, fault: _Fault, which: str, where: str) -> None:
        """A round that must be refused, or end exactly."""
        hit: list[Parcel] = []

        def line(sent: list[Parcel]) -> list[Parcel]:
            those = [parcel for parcel in filter(_has_data, sent) if _line_of(parcel) == of]
            if which != "all":
                those = those[-1:] if which == "the last" else those[: not hit]
            hit.extend(those)
            arrived = (
                [each._replace(data=data) for data in fault(each, self._sent)]
                if any(each is one for one in those)
                else [each]
                for each in sent
            )
            return [*chain(*arrived)]

        self._run(line, where)
        require(bool(hit), f"no message was there to be struck: {where}")

    def _run(
        self, line: Callable[[list[Parcel]], list[Parcel]], where: str
    ) -> tuple[set[int], str]:
        """The clients whose inputs are in the result, or why the round has none."""
        self._number += 1
        self._sent.append([])

        def carrier(sent: Sequence[Parcel]) -> list[Parcel]:
            self._sent[-1] += sent
            return line(list(sent))

        try:
            clients, found = self._next(carrier=carrier)
        except ProtocolError as refused:
            return set(), f" ({refused})"
        except Exception as crashed:
            raise AssertionError(f"{crashed!r}, no ProtocolError: {where}") from crashed
        same = np.array_equal(found, self._contract.exact(clients, self._number))
        require(same, f"another result than that of clients {sorted(clients)}: {where}")
        return set(clients), ""
