"""Damaged messages, half of them validly signed again: refused or well formed, nothing else.

``FUZZ_MESSAGES`` sets how many are tried.
"""

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from secure_fedrec.errors import ProtocolError, WireError
from secure_fedrec.protection.shared_upload.messages import Kind, sign

Make = Callable[..., Any]
MESSAGES = int(os.environ.get("FUZZ_MESSAGES", "6000"))
STATES = ("keys", "collecting", "held", "consented")
HEADER, SIGNATURE = 48, 64
_SENDER = {Kind.SHARES: "client", Kind.SEED: "client"} | dict.fromkeys(
    (Kind.ADVERT, Kind.HELD, Kind.CONSENT, Kind.SUMS), "denoiser"
)


class Stage:
    """A round in some state, the genuine messages of all types, and every door to knock at."""

    def __init__(self, begin: Make, state: str) -> None:
        self.round = round_ = begin(clients=3, denoisers=2)
        for client in range(2):
            round_.upload(client)
        late = round_.share(2, *_nothing(round_))
        # The same parties up to the end, for genuine messages of later types.
        ahead = begin(clients=3, denoisers=2)
        for client in range(2):
            ahead.upload(client)
        held = [denoiser.hold() for denoiser in ahead.denoisers]
        proposal = ahead.server.propose(held)
        consents = [denoiser.consent(proposal) for denoiser in ahead.denoisers]
        agreement = ahead.server.agree(consents)
        self.genuine = {
            Kind.ADVERT: round_.denoisers[0].advertise(),
            Kind.SHARES: late.server,
            Kind.SEED: late.denoisers[0],
            Kind.HELD: held[0],
            Kind.PROPOSAL: proposal,
            Kind.CONSENT: consents[0],
            Kind.AGREEMENT: agreement,
            Kind.SUMS: ahead.denoisers[0].release(agreement),
        }
        self.others = {
            Kind.ADVERT: round_.denoisers[1].advertise(),
            Kind.HELD: held[1],
            Kind.CONSENT: consents[1],
            Kind.SUMS: ahead.denoisers[1].release(agreement),
        }
        self.client = begin(clients=3, denoisers=2).clients[0]
        if state in ("held", "consented"):
            proposal = round_.server.propose([d.hold() for d in round_.denoisers])
        if state == "consented":
            round_.server.agree([d.consent(proposal) for d in round_.denoisers])

    def doors(self) -> list[tuple[str, Any, Callable[[bytes], Any], Kind]]:
        denoiser, server = self.round.denoisers[0], self.round.server

        def both(call: Callable[[list[bytes]], Any], kind: Kind) -> Callable[[bytes], Any]:
            return lambda message: call([message, self.others[kind]])

        return [
            ("client.accept", self.client, both(self.client.accept, Kind.ADVERT), Kind.ADVERT),
            ("denoiser.receive", denoiser, denoiser.receive, Kind.SEED),
            ("denoiser.consent", denoiser, denoiser.consent, Kind.PROPOSAL),
            ("denoiser.release", denoiser, denoiser.release, Kind.AGREEMENT),
            ("server.receive", server, server.receive, Kind.SHARES),
            ("server.propose", server, both(server.propose, Kind.HELD), Kind.HELD),
            ("server.agree", server, both(server.agree, Kind.CONSENT), Kind.CONSENT),
            ("server.finish", server, both(server.finish, Kind.SUMS), Kind.SUMS),
        ]


def _nothing(round_: Any) -> Any:
    context = round_.context
    rows = np.arange(3, dtype=np.int32)
    return rows, np.zeros((3, context.width), context.codec.dtype), np.ones(3, dtype=bool)


def damage(body: bytes, rng: random.Random) -> bytes:
    how = rng.randrange(5)
    if how == 0 and body:  # one byte of the first fields, where counts and numbers stand
        changed = bytearray(body)
        changed[rng.randrange(min(12, len(body)))] ^= rng.randrange(1, 256)
        return bytes(changed)
    if how == 1 and body:
        changed = bytearray(body)
        changed[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        return bytes(changed)
    if how == 2:
        return body[: rng.randrange(len(body) + 1)]
    if how == 3:
        return body + rng.randbytes(rng.randrange(1, 40))
    return rng.randbytes(rng.randrange(120))


def test_damaged_messages_are_refused_or_well_formed(begin: Make) -> None:
    rng = random.Random(20211)
    seen: Counter[tuple[str, int]] = Counter()
    stages = {state: Stage(begin, state) for state in STATES}
    for number in range(MESSAGES):
        state = STATES[number % len(STATES)]
        stage = stages[state]
        name, party, door, awaited = rng.choice(stage.doors())
        kind = awaited if rng.random() < 0.8 else rng.choice(list(stage.genuine))
        genuine = stage.genuine[kind]
        body = damage(genuine[HEADER:-SIGNATURE], rng)
        if number % 2:
            keys = {"client": stage.round.keys.clients, "denoiser": stage.round.keys.denoisers}
            sender = 2 if kind in (Kind.SHARES, Kind.SEED) else 0
            group = keys.get(_SENDER.get(kind, ""), (stage.round.keys.server,))
            message = sign(kind, sender, body, context=stage.round.context, identity=group[sender])
        else:
            header = bytearray(genuine[:HEADER])
            if rng.random() < 0.5:
                header[rng.randrange(HEADER)] ^= 1 << rng.randrange(8)
            message = bytes(header) + body + genuine[-SIGNATURE:]
        if message == genuine:
            continue
        before = party._state
        try:
            door(message)
        except (ProtocolError, WireError):
            seen["refused", number % 2] += 1
            if party._state is before:
                continue
            assert party._state.value == "aborted"
        else:
            # Only what its sender signed is ever accepted.
            assert number % 2, f"{name} accepted an unsigned message"
            seen["accepted", 1] += 1
        stages[state] = Stage(begin, state)
    assert seen["refused", 0] >= MESSAGES // 2 - 5
    assert seen["refused", 1] > MESSAGES // 4


def test_noise_is_refused(begin: Make) -> None:
    rng = random.Random(5)
    stage = Stage(begin, "collecting")
    for _ in range(500):
        for name, _, door, _ in stage.doors():
            try:
                door(rng.randbytes(rng.randrange(300)))
            except (ProtocolError, WireError):
                continue
            raise AssertionError(f"{name} accepted noise")
