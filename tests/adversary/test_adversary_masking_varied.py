"""A server that says something else to every client, in every message: nothing opens that may not.

Each run takes a state of the model (a random one, or one that is an attack on clients that do not
compare their sharers) and plays it with real keys; on top of that the server varies single messages
at random. At the end it puts together all that it was sent, and computes every sum that this gives.
"""

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np
import pytest

from secure_fedrec.errors import ProtocolError
from secure_fedrec.protection.masking import SERVER, Federation, Kind
from secure_fedrec.protection.masking.envelope import Envelope, cohort_hash, seal
from secure_fedrec.protection.masking.messages.key_messages import Advertisement, Keys, Setup
from secure_fedrec.protection.masking.messages.sum_messages import (
    MerkleTree,
    Quorum,
    Result,
    Survivors,
)
from tests.model_check.cases import CASES, search
from tests.model_check.hostile import HostileRound, federation_of
from tests.model_check.settings import Setting, members, tables_of
from tests.model_check.sharers import SharerState
from tests.model_check.switches import switched_off

EQUAL = frozenset({"equal sharers"})
VARIED = (Kind.SETUP, Kind.KEYS, Kind.BOXES, Kind.SURVIVORS, Kind.QUORUM, Kind.RESULT)
PLAIN_RUNS, NOISY_RUNS, WEAK_RUNS = 24, 116, 40
PLAYED = [case for case in CASES if case.model == "sharers" and case.setting.n == 8]
PLAYED = [case for case in PLAYED if "equal sharers" in case.without and case.safe == case.setting]


class VaryingServer(HostileRound):
    """A round whose server varies messages.

    Args:
        federation: of the clients.
        setting: the parameters.
        rng: decides what is varied.
        rate: probability that one message to one client is.
        earlier: an earlier round, to send its signatures again.
    """

    def __init__(
        self,
        federation: Federation,
        setting: Setting,
        *,
        rng: random.Random,
        rate: float,
        earlier: HostileRound | None,
    ) -> None:
        self.rng, self.rate, self.earlier = rng, rate, earlier
        self.varied: Counter[str] = Counter()
        self.taken: Counter[str] = Counter()
        super().__init__(federation, setting, seed=rng.randrange(2**32))

    def varies(self, kind: Kind) -> bool:
        """Whether this message is to be another one."""
        hit = self.rng.random() < self.rate
        self.varied[kind.name] += hit
        return hit

    def deliver_setup(self, number: int, data: bytes) -> bytes | None:
        if self.varies(Kind.SETUP):
            told, context = self.core._setup, self.core.public.context
            n = self.setting.n
            changed = self.rng.choice(
                (
                    replace(told, cohort=told.cohort[::-1].copy()),
                    replace(told, cohort=np.delete(told.cohort, self.rng.randrange(n))),
                    replace(told, epoch=told.epoch + 1),
                    replace(told, roster_version=told.roster_version + 1),
                    replace(told, config=replace(told.config, min_survivors=n)),
                )
            )
            context = replace(
                context,
                config_hash=changed.config.hash,
                cohort_hash=cohort_hash(changed.cohort),
            )
            if self.answered(number, Kind.SETUP, self.sealed(context, changed)):
                return None  # it is in a round of its own now
        return self.ask(number, data)

    def deliver_keys(self, number: int, data: bytes) -> bytes | None:
        sent = Envelope.decode(data)
        keys = Keys.decode(sent.head, sent.payload, self.config)
        others = sorted(keys.records)
        if len(others) < 2 or not self.varies(Kind.KEYS):
            return self.ask(number, data)
        marks, records, beacon = keys.advertised.copy(), dict(keys.records), keys.beacon
        one, other = self.rng.sample(others, 2)
        how = self.rng.choice(("subset", "subset", "subset", "beacon", "swap", "own keys"))
        if how == "subset":
            marks[one] = False
            del records[one]
        elif how == "beacon":
            beacon = self.rng.randbytes(32)
        elif how == "swap":
            records[one], records[other] = records[other], records[one]
        else:  # keys of the server, signed by nobody who should
            own = Advertisement.decode(records[one][:-64], self.config)
            forged = replace(own, mask_public=bytes([9]) + bytes(31)).head()
            records[one] = forged + records[one][-64:]
        changed = Keys(advertised=marks, beacon=beacon, records=records)
        return self.answered(
            number, Kind.KEYS, self.says(Kind.KEYS, changed.head(), changed.payload())
        )

    def records_for(self, number: int, told: frozenset[int]) -> dict[int, bytes]:
        records = super().records_for(number, told)
        if number not in self.corrupt and len(records) > 1 and self.varies(Kind.BOXES):
            one, other = self.rng.sample(sorted(records), 2)
            # Another sender's, or what the same sender wrote to somebody else.
            elsewhere = list(self.core._shares[one].records.values())
            records[one] = self.rng.choice((records[other], self.rng.choice(elsewhere)))
        return records

    def upload(self, number: int, view: Iterable[int]) -> bool:
        told = set(view) & set(self.core._shares)
        if number not in self.corrupt and self.varies(Kind.BOXES):
            told ^= {self.rng.randrange(self.setting.n)}
        return super().upload(number, told & set(self.core._shares))

    def survivors(
        self, number: int, story: Iterable[int], signatures: Mapping[int, bytes] | None = None
    ) -> bytes:
        told = frozenset(story)
        message = super().survivors(number, told, signatures)
        if not self.varies(Kind.SURVIVORS):
            return message
        sent = Envelope.decode(message)
        true = Survivors.decode(sent.head, sent.payload, self.config)
        forwarded = dict(true.shared_signatures)
        how = self.rng.choice(("withheld", "swapped", "replayed", "root", "path", "story"))
        if how == "story":
            return super().survivors(number, told ^ {self.rng.randrange(self.setting.n)})
        if how == "root":
            true = replace(true, root=self.rng.randbytes(32))
        elif how == "path":
            true = replace(true, path=true.path[::-1])
        elif forwarded:
            one = self.rng.choice(sorted(forwarded))
            if how == "withheld":
                del forwarded[one]
            elif how == "swapped":  # who holds this client's view may sign for who does not
                forwarded[one] = self.rng.choice(sorted(self.signatures.values()))
            elif self.earlier is not None:
                forwarded[one] = self.earlier.signatures.get(one, bytes(64))
        changed = replace(true, shared_signatures=forwarded)
        return self.says(Kind.SURVIVORS, changed.head(), changed.payload())

    def reveal(self, number: int, signatures: Mapping[int, bytes], story: Iterable[int]) -> bool:
        if self.varies(Kind.QUORUM):
            chosen = dict(signatures)
            how = self.rng.choice(("fewer", "foreign", "repeated"))
            if how == "fewer" and chosen:
                del chosen[self.rng.choice(sorted(chosen))]
            elif how == "foreign" and chosen:
                chosen[self.rng.choice(sorted(chosen))] = self.rng.randbytes(64)
            signatures = chosen
        if not super().reveal(number, signatures, story):
            return False
        self.ask_again(number, signatures)
        return True

    def ask_again(self, number: int, signatures: Mapping[int, bytes]) -> None:
        """A second QUORUM gets the stored bytes, or nothing; a false RESULT gets nothing."""
        head = Quorum(signatures=dict(sorted(signatures.items())[1:])).head()
        stored = self.federation.journals[number].revealed(self.core.public.context.round_id)
        assert self.ask(number, self.says(Kind.QUORUM, head)) == stored
        others = [leaf for other, leaf in self.leaves.items() if other != number]
        tree = MerkleTree(others)
        result = Result(
            digest=self.rng.randbytes(32),
            root=tree.root,
            leaves=len(others),
            index=0,
            path=tree.path(0),
        )
        self.varied[Kind.RESULT.name] += 1
        with pytest.raises(ProtocolError):
            self.clients[number].receive(self.says(Kind.RESULT, result.head(), result.payload()))

    def answered(self, number: int, kind: Kind, message: bytes) -> bytes | None:
        """An answer to a varied message, counted."""
        reply = self.ask(number, message)
        self.taken[kind.name] += reply is not None
        return reply

    def sealed(self, context: object, setup: Setup) -> bytes:
        return seal(
            self.federation.server.key,
            context,  # type: ignore[arg-type]
            Kind.SETUP,
            SERVER,
            setup.head(),
        )


def random_state(rng: random.Random, setting: Setting) -> SharerState:
    """Any admissible state with a group in one arc of the ring, or one without a group."""
    n = setting.n
    corrupt = rng.choice(tables_of(setting, EQUAL).corrupt.tolist())
    labels = ("dropped", "absent", "inside", "divergent", "outside")
    places = dict.fromkeys(labels, 0)
    length = rng.randrange(1, n - 1)
    fair = rng.random() < 0.4
    for place in members(2**n - 1 & ~corrupt):
        within = ("inside", "divergent") if place < length else ("outside", "outside")
        choices = ("inside",) * 15 + ("dropped",) if fair else within * 4 + ("dropped", "absent")
        places[rng.choice(choices)] |= 1 << place
    return SharerState(kind="", corrupt=corrupt, unknown=0, fakes=False, **places)


def play(server: VaryingServer, state: SharerState) -> None:
    """The state, as far as the varied messages let it come."""
    order = server.order

    def clients(places: int) -> frozenset[int]:
        return frozenset(order[members(places)].tolist())

    everybody = frozenset(server.clients)
    absent, outside = clients(state.absent), clients(state.outside)
    common = everybody - absent
    server.corrupt_clients(clients(state.corrupt))
    group = clients(state.inside | state.divergent)
    for number in sorted(everybody - absent - server.corrupt):
        view = common
        if number in clients(state.divergent):
            view = common - (server.near[number] & (outside | clients(state.unknown)))
        server.upload(number, view)
    story = common - clients(state.dropped)
    server.tell(clients(state.inside | state.outside), story)
    # Whoever was left out of that story gets one of its own.
    rest = clients(state.divergent | state.dropped)
    server.tell(rest, group | server.corrupt | rest)


def run(
    rng: random.Random, federation: Federation, *, rate: float, earlier: HostileRound | None
) -> tuple[VaryingServer, bool] | None:
    """One round: the server, and whether it computed a sum it must not; None if none began."""
    case = rng.choice(PLAYED)
    examples = search(case.setting, "sharers", case.without).examples
    planned = examples and rng.random() < 0.6
    state = rng.choice(examples) if planned else random_state(rng, case.setting)
    assert isinstance(state, SharerState)
    try:
        server = VaryingServer(federation, case.setting, rng=rng, rate=rate, earlier=earlier)
    except ProtocolError:  # too few clients advertised what the server asked of them
        return None
    play(server, state)
    opened = server.open_sums()
    for group, found in opened.items():
        assert np.array_equal(found, server.true_sum(group))
    agreed = {told for _, told in server.unmasked.values()}
    lawful = {told - server.corrupt for told in agreed if len(told) >= server.setting.min_survivors}
    return server, len(agreed) > 1 or len(opened) > 1 or not set(opened) <= lawful


@pytest.mark.claim("masking-varied-messages")
def test_nothing_opens_whatever_each_client_is_told() -> None:
    rng, federation = random.Random(20), federation_of(8)
    varied: Counter[str] = Counter()
    taken: Counter[str] = Counter()
    outcomes: Counter[str] = Counter()
    earlier: HostileRound | None = None
    with switched_off():
        for number in range(PLAIN_RUNS + NOISY_RUNS):
            rate = 0.0 if number < PLAIN_RUNS else 0.04
            played = run(rng, federation, rate=rate, earlier=earlier)
            if played is None:
                outcomes["not begun"] += 1
                continue
            earlier, unlawful = played
            assert not unlawful
            outcomes["revealed"] += bool(earlier.unmasked)
            outcomes["opened"] += bool(earlier.open_sums())
            varied += earlier.varied
            taken += earlier.taken
    # Not vacuous: many rounds come as far as reveals, some open what they may, each message varied.
    assert outcomes["revealed"] >= 50
    assert outcomes["opened"] >= 5
    assert min(varied[kind.name] for kind in VARIED) >= 5
    assert taken[Kind.KEYS.name] >= 3  # clients that went on with fewer neighbours


@pytest.mark.claim("masking-varied-messages")
def test_clients_that_do_not_compare_their_sharers_are_opened() -> None:
    rng, federation = random.Random(21), federation_of(8)
    with switched_off(EQUAL):
        played = [run(rng, federation, rate=0.0, earlier=None) for _ in range(WEAK_RUNS)]
    assert sum(each is not None and each[1] for each in played) >= 5
