"""The contract of halves finds what a careless protocol does, and passes a careful one."""

from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import sha256
from itertools import count
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


def value(round_: int, number: int) -> int:
    return NUMBERS[number] + 16 * (round_ % 4)


def said(round_: int, number: int) -> bytes:
    body = bytes([round_, number, value(round_, number)])
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
            if not self._heard(self._round, data, self.numbers):
                raise ProtocolError("a message that is none")
            self.numbers[data[-2]] = data[-1]
            self.total += data[-1]
        if not self.numbers:
            raise ProtocolError("nobody said anything")
        self.finished = True
        return []


class Careful(PartyContract):
    def heard(self, round_: int, data: bytes, known: dict[int, int]) -> bool:
        fresh = len(data) == 35 and data[-3] == round_ and data[-2] not in known
        return fresh and data[:-3] == sha256(data[-3:]).digest()

    def federation(self) -> NextRound:
        rounds = count(1)

        def next_round(*, carrier: Carrier) -> tuple[Collection[int], Any]:
            round_ = next(rounds)
            server = Server(round_, self.heard)
            run_in_memory(server, [Client(n, round_) for n in NUMBERS], carrier=carrier)
            return set(server.numbers), server.total

        return next_round

    def exact(self, clients: Collection[int], round_: int) -> Any:
        return sum(value(round_, number) for number in clients)

    def everybody(self) -> Collection[int]:
        return NUMBERS


class TestCareful(Careful):
    pass


class Lonely(Careful):
    def everybody(self) -> Collection[int]:
        return {*NUMBERS, 3}


class Alike(Careful):
    def exact(self, clients: Collection[int], round_: int) -> Any:
        return sum(value(1, number) for number in clients)


class Asked(Client):
    """Answers a question of this round alone."""

    def step(self, inbox: Sequence[bytes]) -> list[Parcel]:
        if bytes([self._round]) not in inbox:
            raise ProtocolError("no question of this round")
        return super().step(inbox)


class Asking(Server):
    """Asks under the name of the answers, and awaits all of them."""

    def step(self, inbox: Iterable[bytes]) -> list[Parcel]:
        prompts = super().step(inbox)
        if self.finished and self.numbers.keys() != NUMBERS.keys():
            raise ProtocolError("an answer is missing")
        return [prompt._replace(data=bytes([self._round])) for prompt in prompts]


class OneName(Careful):
    """Questions are of their round, answers of any."""

    def heard(self, round_: int, data: bytes, known: dict[int, int]) -> bool:
        return len(data) == 35 and data[-2] not in known and signed(data)

    def federation(self) -> NextRound:
        rounds = count(1)

        def next_round(*, carrier: Carrier) -> tuple[Collection[int], Any]:
            round_ = next(rounds)
            server = Asking(round_, self.heard)
            run_in_memory(server, [Asked(n, round_) for n in NUMBERS], carrier=carrier)
            return set(server.numbers), server.total

        return next_round


class Bitter(Careful):
    """No round works after one that was refused."""

    refused = False

    def heard(self, round_: int, data: bytes, known: dict[int, int]) -> bool:
        self.refused |= not super().heard(round_, data, known)
        return not self.refused


def hearing(heard: Callable[[int, bytes, dict[int, int]], bool]) -> type[Careful]:
    return type("Faulty", (Careful,), {"heard": staticmethod(heard)})


def signed(data: bytes) -> bool:
    return data[:-3] == sha256(data[-3:]).digest()


FAULTS = "test_no_fault_of_a_line_makes_another_result"


@pytest.mark.parametrize(
    ("contract", "test", "says"),
    [
        (Lonely, "test_a_round_ends_in_the_exact_result", "only"),
        (Alike, "test_results_tell_whose_inputs_are_in_them", "the same in two rounds"),
        (Bitter, FAULTS, "the round after"),
        (OneName, FAULTS, "the previous round's message at NUMBER, all, client to server"),
        (
            hearing(lambda r, d, k: d[-3] == r and signed(d) and d[-2] not in k),
            FAULTS,
            "no ProtocolError",
        ),
        (
            hearing(lambda r, d, k: len(d) == 35 and d[-3] == r and d[-2] not in k),
            FAULTS,
            "altered in the last byte at NUMBER, all",
        ),
        (
            hearing(lambda r, d, k: len(d) == 35 and d[-3] == r and signed(d)),
            FAULTS,
            "repeated at NUMBER, all",
        ),
        (
            hearing(lambda r, d, k: len(d) == 35 and d[-2] not in k and signed(d)),
            FAULTS,
            "the previous round's message",
        ),
        (
            hearing(
                lambda r, d, k: (
                    (d[-2:-1] == b"\2" or signed(d)) and d[-3:-2] == bytes([r]) and d[-2] not in k
                )
            ),
            FAULTS,
            "the last",
        ),
    ],
)
def test_what_breaks_the_contract_is_told(
    contract: type[PartyContract], test: str, says: str
) -> None:
    with pytest.raises(AssertionError, match=says):
        getattr(contract(), test)()
