"""Of shared uploads, denoisers behind mixes and Paillier: no sum of clients of two statements.

As ``test_adversary_statements`` shows of masks. Fields are drawn from the statement's own schema.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.engines.distributed.training_plan import TrainingPlan
from secure_fedrec.errors import ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.base.hosting import Standing
from secure_fedrec.protection.paillier import (
    Authority,
    Encryptor,
    Identity,
    KeyHolding,
    Plan,
    Role,
    Roster,
    SlotLayout,
    UploadingClient,
    UploadingServer,
    generate_key,
)
from secure_fedrec.protection.paillier.messages.envelopes import Kind
from secure_fedrec.protection.session import Node, run_in_memory
from secure_fedrec.protection.session.statement import Statement
from tests.adversary.test_adversary_statements import NAMES, STATED, changed
from tests.deploy.memory import Deployment
from tests.deploy.test_deploy_rounds import SHARED, settings
from tests.deploy.test_deploy_routed import ROUTED
from tests.paillier_federation import seal

TINY: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 6, "items": 12, "mean_ratings": 5.0},
    "algorithm": {"rounds": 40, "rank": 1},
}
STACKS: dict[str, dict[str, Any]] = {
    "shares": settings(*SHARED, **TINY),
    "denoisers behind mixes": settings(*ROUTED, **TINY),
    "paillier": settings({"layer": "paillier", "key_bits": 2048}, **TINY),
}


@pytest.fixture
def _no_questions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The server tells every site what that one states: nothing differs by its word."""
    monkeypatch.setattr(Statement, "require_same", lambda self, told: None)
    yield


class Told:
    """Which hosts state a round with another value in one field.

    Args:
        ran: the deployment.
        monkeypatch: undone by the test.
    """

    def __init__(self, ran: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
        self._plans = {n: ran.site(n)._plan for n in ran.layout.sites()}
        self._plans[-1] = ran.coordinator._plan
        self.others: set[int] = set()
        self.name = ""
        honest = TrainingPlan.standing

        def standing(plan: TrainingPlan, *given: Any, **named: Any) -> Standing:
            at = honest(plan, *given, **named)
            told = any(self._plans[number] is plan for number in self.others)
            return replace(at, statement=changed(at.statement.known, self.name)) if told else at

        monkeypatch.setattr(TrainingPlan, "standing", standing)


@pytest.mark.claim("other-layers-one-statement")
@pytest.mark.usefixtures("one_paillier_key", "_no_questions")
@pytest.mark.parametrize("stack", STACKS)
@hypothesis_settings(
    max_examples=2, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    drawn=st.fixed_dictionaries(
        {name: st.sets(st.sampled_from(range(-1, 6)), min_size=1, max_size=5) for name in NAMES}
    )
)
def test_no_sum_is_of_clients_of_two_statements(stack: str, drawn: dict[str, set[int]]) -> None:
    """Some hosts are told otherwise, the server's (-1) among them or not."""
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        ran = Deployment.of(STACKS[stack], Path(folder), attempts=1)
        told = Told(ran, patch)
        for name, others in drawn.items():
            before = ran.coordinator.public
            told.name, told.others = name, others
            try:
                ran.rounds(1)
            except ProtocolError:
                assert ran.coordinator.public is before
                assert ran.coordinator.public.round == before.round
            else:
                summed = set(ran.last.clients.tolist())
                assert summed <= others if -1 in others else not summed & others
            # Those who told otherwise may have answered each other for this round's number.
            told.others, public = set(), ran.coordinator.public
            ran.coordinator.public = PublicState(
                round=public.round + 1, table=public.table * 1.01, extras=public.extras
            )
            ran.rounds(1)
            assert len(ran.last.clients) == 6


CODEC = FixedPoint(bits=40, fraction_bits=20, clip=1000.0)
CLIENTS = (0, 1, 2)
PARTIES = [Node(Role.SERVER), Node(Role.AUTHORITY), *(Node(Role.CLIENT, n) for n in CLIENTS)]


class Masked:
    """A round of Paillier with pairwise masks, whose attempt is what each party states."""

    def __init__(self) -> None:
        self.private = generate_key(2048)
        self.identities = {node: Identity.generate(node) for node in PARTIES}
        keys = {node: each.public for node, each in self.identities.items()}
        self.roster = Roster.of(Ed25519PrivateKey.generate(), keys)
        self.encryptor = Encryptor(self.private.public)

    def plan(self, told: Statement) -> Plan:
        layout = SlotLayout(codec=CODEC, length=3, budget=len(CLIENTS), whole_ring=True)
        return Plan(
            holding=KeyHolding(holder="authority", masked=True, adversary="active-server"),
            key=self.private.public,
            roster=self.roster,
            clients=CLIENTS,
            layouts=(layout,),
            federation=told.federation[:16],
            attempt=told.digest,
        )

    def client(self, number: int, told: Statement) -> UploadingClient:
        identity = self.identities[Node(Role.CLIENT, number)]
        half = UploadingClient(self.plan(told), identity, self.encryptor, told.round)
        half.load([CODEC.encode(np.arange(3.0))])
        return half

    def keys_for(self, told: Statement, advertised: list[bytes]) -> bytes:
        """Every client's mask key, as the server signs them for who states this."""
        context, server = self.plan(told).context, self.identities[Node(Role.SERVER)]
        body = b"".join(advertised)
        return seal(server, Kind.MASK_KEYS, round_=told.round, context=context, body=body)


@pytest.fixture(scope="module")
def masked() -> Masked:
    return Masked()


def test_masked_ciphertexts_of_one_statement_are_summed(masked: Masked) -> None:
    """Or what follows would show nothing."""
    plan = masked.plan(STATED)
    server = UploadingServer(plan, masked.identities[Node(Role.SERVER)], STATED.round)
    holder = masked.identities[Node(Role.AUTHORITY)]
    authority = Authority(plan, holder, masked.private, last_round=STATED.round - 1)
    run_in_memory(server, [authority, *(masked.client(n, STATED) for n in CLIENTS)])
    (found,) = server.result()
    assert CODEC.decode(found).tolist() == [0.0, 3.0, 6.0]


@pytest.mark.claim("other-layers-one-statement")
@pytest.mark.parametrize("name", NAMES)
@hypothesis_settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(others=st.sets(st.sampled_from(CLIENTS), min_size=1, max_size=2))
def test_no_client_masks_for_clients_of_another_statement(
    name: str, others: set[int], masked: Masked
) -> None:
    """The server hands everybody all keys, under whatever that client states."""
    told = {n: changed(STATED, name) if n in others else STATED for n in CLIENTS}
    halves = {n: masked.client(n, told[n]) for n in CLIENTS}
    advertised = [half.advertise() for half in halves.values()]
    for number, half in halves.items():
        with pytest.raises(ProtocolError):
            half.step([masked.keys_for(told[number], advertised)])
        with pytest.raises(ProtocolError):
            half.upload([CODEC.encode(np.arange(3.0))])
