"""The committee that signs the survivors: its size, its draw, and rounds in which it signs."""

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from secure_fedrec.errors import ConfigError, ProtocolError
from secure_fedrec.protection.masking import ClientState, Kind, SitePolicy
from secure_fedrec.protection.masking.config.committee import (
    draw_committee,
    overlap_of,
    smallest_committee,
)
from secure_fedrec.protection.masking.config.graph import graph_seed, permutation
from secure_fedrec.protection.masking.config.parameters import find_parameters
from secure_fedrec.protection.masking.envelope import Envelope, seal
from secure_fedrec.protection.masking.messages.sum_messages import Quorum
from tests.protection.masking.test_parameters_promises import tail

BEACON = b"b" * 32
CLIENTS = tuple(range(1, 13))

# Size


def smallest_by_trial(n: int, c: int, d: int, privacy: Fraction, correctness: Fraction) -> Any:
    """Members and quorum: every size, every quorum, every tail term by term."""
    for m in range(1, n):
        for q in range(1, m + 1):
            if tail(n, c, m, 2 * q - m) <= privacy and 2 * q > m:
                if tail(n, d, m, m - q + 1) <= correctness:
                    return m, q
                break  # a larger quorum is missed more often
    return None


@pytest.mark.claim("masking-committee")
@settings(deadline=None, max_examples=60)
@given(st.integers(3, 90), st.data())
def test_no_smaller_committee_meets_the_bounds(n: int, data: st.DataObject) -> None:
    c, d = data.draw(st.integers(0, n // 2)), data.draw(st.integers(0, n // 2))
    privacy = Fraction(1, 2 ** data.draw(st.integers(1, 40)))
    correctness = Fraction(1, 2 ** data.draw(st.integers(1, 20)))
    found = smallest_committee(n, c, d, privacy=privacy, correctness=correctness)
    expected = smallest_by_trial(n, c, d, privacy, correctness)
    assert (found and (found.members, found.quorum)) == expected
    if found:
        assert found.corrupted == tail(n, c, found.members, 2 * found.quorum - found.members)
        assert found.lost == tail(n, d, found.members, found.members - found.quorum + 1)


@pytest.mark.parametrize("n", [10**4, 10**6])
def test_with_all_of_the_budget_76_sign_whatever_the_size_of_the_cohort(n: int) -> None:
    bounds = {"privacy": Fraction(1, 2**40), "correctness": Fraction(1, 2**20)}
    found = smallest_committee(n, n // 10, n // 10, **bounds)
    assert found is not None
    assert (found.members, found.quorum) == (76, 54)
    shared = find_parameters(n, corrupt=0.1, dropout=0.1, adversary="active")
    assert (shared.committee, shared.quorum) == (82, 58)  # within half of what the windows leave


def test_nothing_is_left_for_a_committee_where_the_budget_is_spent() -> None:
    assert smallest_committee(50, 5, 5, privacy=Fraction(0), correctness=Fraction(1)) is None
    assert smallest_committee(50, 5, 5, privacy=Fraction(1), correctness=Fraction(0)) is None


def test_two_sets_as_large_as_the_overlap_share_an_honest_client() -> None:
    for clients in range(1, 40):
        for corrupt in range(clients):
            least = overlap_of(clients, corrupt)
            assert 2 * least - clients > corrupt
            assert 2 * (least - 1) - clients <= corrupt


# Draw


def test_the_draw_is_the_documented_one_and_not_the_rings() -> None:
    seed = graph_seed(BEACON, b"c" * 32, b"r" * 16)
    label = b"secure-fedrec|v1|masking|committee|" + (32).to_bytes(8, "little") + seed
    order = permutation(hashlib.sha256(label).digest(), 40)
    drawn = draw_committee(seed, 40, 9)
    assert sorted(order[:9].tolist()) == np.flatnonzero(drawn).tolist()
    assert set(permutation(seed, 40)[:9].tolist()) != set(np.flatnonzero(drawn).tolist())


def test_every_client_is_drawn_as_often_as_any_other() -> None:
    drawn = sum(
        draw_committee(hashlib.sha256(bytes([0, each % 256, each // 256])).digest(), 20, 5).astype(
            int
        )
        for each in range(4_000)
    )
    # 1,000 expected of each; a standard deviation is 27
    assert np.all(np.abs(drawn - 1_000) < 6 * 27)


@pytest.mark.parametrize("members", [0, 21])
def test_a_committee_is_of_some_clients(members: int) -> None:
    assert draw_committee(bytes(32), 20, 20).all()
    with pytest.raises(ConfigError, match=r"masking\.committee"):
        draw_committee(bytes(32), 20, members)
    with pytest.raises(ConfigError, match=r"masking\.graph_seed"):
        draw_committee(bytes(31), 20, 5)


# Rounds


@pytest.fixture(autouse=True)
def _any_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SitePolicy, "require", lambda *_: None)  # a real graph has more clients


def committee_round(scene: Any, *, quorum: int = 3) -> tuple[Any, set[int], set[int]]:
    """Twelve clients, five of whom sign; the members, and all others, once SURVIVORS are due."""
    s = scene(
        numbers=CLIENTS, epoch=1, degree=6, threshold=3, window_least=1, min_survivors=8,
        committee=5, quorum=quorum,
    )  # fmt: skip
    s.beacon = BEACON
    s.until_clients_get(Kind.SURVIVORS)
    members = {CLIENTS[place] for place in np.flatnonzero(s.server._round._topology._committee)}
    assert len(members) == 5
    return s, members, set(CLIENTS) - members


def test_members_sign_and_nobody_else_is_waited_for(scene: Any) -> None:
    s, members, _ = committee_round(scene)
    for number, message in s.outgoing:
        replies = s.clients[number].receive(message)
        assert [reply[1] for reply in replies] == [Kind.CONFIRM] * (number in members)
        assert s.clients[number].state is ClientState.QUORUM
        s.replies |= dict.fromkeys([number][: len(replies)], b"".join(replies))
    assert s.server.awaiting == members
    for number in members:
        s.server.receive(s.replies[number])
    assert not s.server.awaiting
    s.outgoing = s.server.close_step()
    assert {number for number, _ in s.outgoing} == set(CLIENTS)
    signatures = Quorum.decode(Envelope.decode(s.outgoing[0].data).head).signatures
    assert list(signatures) == sorted(members)[:3]
    s._answer({})
    s.finish()
    assert s.layout.decode(s.server.result).tolist() == s.total(CLIENTS).tolist()
    assert all(client.state is ClientState.DONE for client in s.clients.values())


def test_who_is_not_on_the_committee_is_not_heard(scene: Any) -> None:
    s, _, others = committee_round(scene)
    s._answer({})
    number = min(others)
    core = s.server._round
    key = s.federation.identities[number].key
    message = seal(key, core.public.context, Kind.CONFIRM, number, core._confirmed)
    with pytest.raises(ProtocolError, match="is not awaited"):
        s.server.receive(message)
    assert number not in s.server.dropped


def test_a_round_goes_on_while_a_quorum_of_the_committee_is_there(scene: Any) -> None:
    s, members, _ = committee_round(scene)
    silent = sorted(members)[:2]
    s._answer(dict.fromkeys(silent, Kind.CONFIRM))
    s._deliver()
    s.outgoing = s.server.close_step()
    s._answer(dict.fromkeys(silent, Kind.CONFIRM))
    s._deliver()
    s.server.close_step()
    assert s.layout.decode(s.server.result).tolist() == s.total(CLIENTS).tolist()


def test_without_a_quorum_of_the_committee_a_round_ends_and_says_why(scene: Any) -> None:
    s, members, _ = committee_round(scene)
    s._answer(dict.fromkeys(sorted(members)[:3], Kind.CONFIRM))
    s._deliver()
    with pytest.raises(ProtocolError, match="2 of the 5 members of the committee agreed"):
        s.server.close_step()
    assert s.server.abort_reason is not None


def test_members_that_did_not_upload_may_end_a_round_before_it_is_agreed_on(scene: Any) -> None:
    """One is enough where all have to sign: no neighbourhood is too small yet."""
    s, members, _ = committee_round(scene, quorum=5)
    core = s.server._round
    core._uploaded[core.public.places[min(members)]] = False
    with pytest.raises(ProtocolError, match="4 of the 5 members of the committee survived"):
        core.close_uploads()


@pytest.mark.claim("masking-one-survivor-set")
@pytest.mark.parametrize("case", ["outsider", "gone", "fewer", "more", "forged", "twice"])
def test_a_client_counts_signatures_of_surviving_members_only(scene: Any, case: str) -> None:
    s, members, others = committee_round(scene)
    s._answer({})
    context, confirmed = s.server._round.public.context, s.server._round._confirmed
    signed = {
        number: Envelope.decode(
            seal(s.federation.identities[number].key, context, Kind.CONFIRM, number, confirmed)
        ).proof
        for number in CLIENTS
    }
    me, chosen = min(others), sorted(members)[:3]
    given = {number: signed[number] for number in chosen}
    if case in ("outsider", "gone"):
        del given[chosen[0]]
        given[max(others) if case == "outsider" else chosen[0]] = signed[chosen[0]]
    if case == "outsider":
        given[max(others)] = signed[max(others)]
    if case == "gone":
        s.clients[me]._round.survivors[s.server._round.public.places[chosen[0]]] = False
    if case == "fewer":
        del given[chosen[0]]
    if case == "more":
        given[sorted(members)[3]] = signed[sorted(members)[3]]
    if case == "forged":
        given[chosen[0]] = signed[chosen[1]]
    head = Quorum(signatures=dict(sorted(given.items()))).head()
    if case == "twice":
        first = chosen[0].to_bytes(4, "little") + signed[chosen[0]]
        second = chosen[1].to_bytes(4, "little") + signed[chosen[1]]
        head = (3).to_bytes(4, "little") + first + first + second
    match = {
        "fewer": "2 signatures", "more": "4 signatures", "forged": "bad signature",
        "twice": "must ascend",
    }.get(case, "is not a survivor that may sign")  # fmt: skip
    s._deliver()
    s.outgoing = s.server.close_step()
    with pytest.raises(ProtocolError, match=match):
        s.clients[me].receive(s.server_says(s.message_for(me), head=head))
    assert s.clients[me].state is ClientState.ABORTED
    assert s.federation.journals[me].revealed(context.round_id) is None


def test_a_saved_client_is_on_the_committee_that_it_was_on(scene: Any, tmp_path: Any) -> None:
    s, members, others = committee_round(scene)
    key = b"k" * 32
    for number in (min(members), min(others)):
        for kind in (Kind.SURVIVORS, Kind.QUORUM):
            path = tmp_path / f"{number}-{kind}"
            s.clients[number].save(path, key)
            half = s.federation.open_client(number, s.expected)
            half.resume(path, key)
            s.clients[number] = half
            if kind is Kind.SURVIVORS:
                replies = half.receive(s.message_for(number))
                s.replies |= dict.fromkeys([number][: len(replies)], b"".join(replies))
                assert bool(replies) == (number in members)
    for number, message in s.outgoing:
        if number not in (min(members), min(others)):
            replies = s.clients[number].receive(message)
            s.replies |= dict.fromkeys([number][: len(replies)], b"".join(replies))
    s.finish()
    assert s.layout.decode(s.server.result).tolist() == s.total(CLIENTS).tolist()
