"""The contract of halves finds what a careless protocol does, and passes a careful one."""

from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import sha256
from typing import Any

import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.session import (
    SERVER,
    Carrier,
    Node,
    Parcel,
    Role,
    from_server,
    run_in_memory,
)
from secure_fedrec.testing import NextRound, PartyContract

NUMBERS = {0: 3, 1: 5, 2: 8}


def said(round_: int, number: int) -> bytes:
    body = bytes([round_, number, NUMBERS[number]])
    return sha256(body).digest() + body


class Client:
    """Says its number; what it is sent says in which round."""

    def __init__(self, number: int, round_: int) -> None:
        self.node, self._round = Node(Role.CLIENT, number), round_

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        del inbox
        return [Parcel(self.node, SERVER, "NUMBER", said(self._round, self.node.number))]


class Server:
    """Adds numbers up; ``heard`` says which messages it takes."""

    node = SERVER

    def __init__(self, round_: int, heard: Callable[[int, bytes, dict[int, int]], bool]) -> None:
        self.stage, self.finished = "NUMBER", False
        self._round, self._heard = round_, heard
        self.numbers: dict[int, int] = {}
        self.total = 0
        self._asked = False

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        if not self._asked:
            self._asked = True
            return from_server([Node(Role.CLIENT, number) for number in NUMBERS], "NUMBER", b"")
        for data in inbox:
            if len(data) != 35 or not self._heard(self._round, data, self.numbers):
                raise ProtocolError("a message that is none")
            self.numbers[data[-2]] = data[-1]
            self.total += data[-1]
        if not self.numbers:
            raise ProtocolError("nobody said anything")
        self.finished = True
        return []


class Careful(PartyContract):
    def heard(self, round_: int, data: bytes, known: dict[int, int]) -> bool:
        fresh = data[-3] == round_ and data[-2] not in known
        return fresh and data[:-3] == sha256(data[-3:]).digest()

    def federation(self) -> NextRound:
        rounds = iter(range(1, 9))

        def next_round(*, carrier: Carrier) -> tuple[Collection[int], Any]:
            round_ = next(rounds)
            server = Server(round_, self.heard)
            run_in_memory(server, [Client(n, round_) for n in NUMBERS], carrier=carrier)
            return set(server.numbers), server.total

        return next_round

    def exact(self, clients: Collection[int]) -> Any:
        return sum(NUMBERS.get(number, 0) for number in clients)

    def everybody(self) -> Collection[int]:
        return NUMBERS


class TestCareful(Careful):
    pass


class Trusting(Careful):
    def heard(self, round_: int, data: bytes, known: dict[int, int]) -> bool:
        return data[-3] == round_ and data[-2] not in known


class Forgetful(Careful):
    def heard(self, round_: int, data: bytes, known: dict[int, int]) -> bool:
        return data[:-3] == sha256(data[-3:]).digest()


class Lonely(Careful):
    def everybody(self) -> Collection[int]:
        return {*NUMBERS, 3}


@pytest.mark.parametrize(
    ("contract", "test", "says"),
    [
        (Trusting, "test_no_fault_of_a_line_makes_another_result", "altered at NUMBER, one"),
        (Forgetful, "test_no_fault_of_a_line_makes_another_result", "repeated at NUMBER, one"),
        (Lonely, "test_a_round_ends_in_the_exact_result", "only"),
    ],
)
def test_what_breaks_the_contract_is_told(
    contract: type[PartyContract], test: str, says: str
) -> None:
    with pytest.raises(AssertionError, match=says):
        getattr(contract(), test)()
