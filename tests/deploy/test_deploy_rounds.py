"""Rounds whose clients are on hosts of their own come to the embedded engine's bits."""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from audits.config.audit import parse_config
from audits.deploy.homes import Layout, open_coordinator, provision
from audits.run.build import build_federation, load_dataset
from secure_fedrec.engines.distributed.host_messages import Request
from secure_fedrec.errors import CheckpointError, ConfigError, ProtocolError
from secure_fedrec.protection.session.statement import Statement
from tests.deploy.memory import Deployment, silences

MASKS: dict[str, Any] = {"layer": "masking", "adversary": "active"}
SHARED = (
    {"layer": "virtual-ratings", "sticky": True},
    {"layer": "shared-upload", "count": 2, "floor": 3},
)
SMALL = {"name": "synthetic", "clients": 5, "items": 40}
HPFL: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 4, "users": 8, "items": 30},
    "algorithm": {
        "name": "hpfl",
        "rounds": 2,
        "gum": {"scale": 5.0, "start": "identity"},
        "training": {"epochs": 1},
    },
}
"""Attribute vectors in a sum, drafts in two bags."""
FEDDMF: dict[str, Any] = {
    "data": {"name": "synthetic", "clients": 24, "items": 40, "cut": {"organisations": 3}},
    "algorithm": {"name": "feddmf", "form": "averaged", "epochs": 2},
}
EXCHANGED: dict[str, Any] = {"data": FEDDMF["data"], "algorithm": {"name": "feddmf", "epochs": 4}}
"""Organisations give each other vectors."""
TEN: dict[str, Any] = {"data": {**SMALL, "clients": 10}, "algorithm": {"rounds": 20}}
"""As many clients as it takes for the masks' parameters to reckon with one that drops out."""
STAGES = ["ADVERTISE", "SHARES", "UPLOAD", "CONFIRM", "REVEAL"]


def settings(*layers: Mapping[str, Any], **others: Any) -> dict[str, Any]:
    known = {"seed": 3, "data": SMALL, "algorithm": {"rounds": 3}, "protection": list(layers)}
    return {**known, **others}


@pytest.mark.parametrize(
    ("layers", "others"),
    [
        ((), {}),
        ((), {"cohort": {"clients_per_round": 2}}),
        ((MASKS,), {}),
        (({"layer": "masking"},), {"cohort": {"clients_per_round": 4}}),
        (SHARED, {}),
        ((MASKS,), {"algorithm": {"name": "fedmf", "rounds": 2}}),
        ((MASKS,), {"algorithm": {"name": "fedncf", "rounds": 2}}),
        ((MASKS,), {"algorithm": {"name": "furl", "rounds": 2}}),
        ((MASKS,), HPFL),
        ((MASKS,), FEDDMF),
        ((), EXCHANGED),
        ((MASKS,), EXCHANGED),
        ((), {"algorithm": {"name": "gpfedrec", "rounds": 2}}),
        ((), {"algorithm": {"name": "perfedrec", "rounds": 2}}),
    ],
    ids=[
        "plain",
        "cohort",
        "masked",
        "masked cohort",
        "shared uploads",
        "fedmf",
        "fedncf",
        "furl",
        "hpfl",
        "feddmf",
        "exchanged",
        "exchanged, masked",
        "gpfedrec",
        "perfedrec",
    ],
)
def test_public_and_private_state_are_the_embedded_engines(
    layers: tuple[Mapping[str, Any], ...], others: Mapping[str, Any], tmp_path: Path
) -> None:
    ran = Deployment.of(settings(*layers, **others), tmp_path)
    ran.rounds(2)
    assert ran.transport.log == []
    ran.require_equal()


@pytest.mark.parametrize("layers", [(MASKS,), SHARED], ids=["masked", "shared"])
def test_the_order_of_answers_changes_no_bit(
    layers: tuple[Mapping[str, Any], ...], tmp_path: Path
) -> None:
    """All that runs in memory answers in shuffled orders; here backwards, and by others."""
    ran = Deployment.of(settings(*layers), tmp_path)

    def backwards(addresses: list[int]) -> None:
        addresses.reverse()

    shuffled = Random(2)
    ran.transport.order = Random(0)
    ran.transport.order.shuffle = backwards  # type: ignore[method-assign, assignment]
    ran.rounds(1)
    ran.transport.order = shuffled
    ran.rounds(2)
    assert ran.transport.log == []
    ran.require_equal()


@pytest.mark.claim("hosts-killed-site")
def test_a_site_that_is_killed_comes_back(tmp_path: Path) -> None:
    """It is left out or in the sum; nobody else's part changes, and it learns which. Back, it
    agrees on keys in one round, and takes part in the next."""
    ran = Deployment.of(settings(MASKS, **TEN), tmp_path)
    due = [""]

    def killing(label: str, client: int, data: bytes) -> list[bytes]:
        if client == 2 and label == due[0]:
            ran.kill(2)
        return [data]

    ran.transport.out = killing
    for stage in ("ADVERTISE", "UPLOAD", "CONFIRM", "REVEAL"):
        due[0] = stage
        ran.rounds(1)
        assert (2 in ran.last.clients) == (stage in ("CONFIRM", "REVEAL")), stage
        ran.restart(2)
        due[0] = ""
        ran.rounds(1)
        assert ran.last.left_out == {2: "took no part when keys of this round were agreed on"}
        assert ran.last.ready == 10
    ran.rounds(1)
    assert 2 in ran.last.clients
    ran.require_equal()


@pytest.mark.claim("hosts-keys-ahead")
@pytest.mark.parametrize("adversary", ["active", "curious"])
def test_keys_are_agreed_on_while_the_round_before_is_summed(
    adversary: str, tmp_path: Path
) -> None:
    """Three exchanges against an active server and two against a curious one, from the second."""
    ran = Deployment.of(settings({**MASKS, "adversary": adversary}), tmp_path)
    signed = ["CONFIRM"] if adversary == "active" else []
    later = ["UPLOAD", *signed, "REVEAL"]
    ran.rounds(1)
    assert ran.transport.labels == ["greeting", "ADVERTISE", "SHARES", *later]
    for ready, more in ((5, True), (0, False)):
        ran.transport.labels.clear()
        ran.rounds(1, more=more)
        assert ran.transport.labels == later
        assert (ran.last.exchanges, ran.last.ready) == (len(later), ready)
    assert ran.transport.log == []
    ran.require_equal()


@pytest.mark.claim("hosts-keys-ahead")
def test_too_few_that_are_ready_agree_on_keys_anew(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS, **TEN), tmp_path)
    due = {"CONFIRM": 2, "REVEAL": 3}

    def killing(label: str, client: int, data: bytes) -> list[bytes]:
        if due.get(label) == client:
            ran.kill(due.pop(label))
        return [data]

    ran.transport.out = killing
    ran.rounds(1)
    assert ran.last.ready == 9
    ran.transport.labels.clear()
    for client in (2, 3):
        ran.restart(client)
    ran.coordinator.channel.greet()
    ran.rounds(1)  # eight of ten that have keys would do for no sum
    assert ran.transport.labels == ["greeting", *STAGES]
    assert len(ran.last.clients) == 10
    ran.rounds(1)
    assert ran.last.exchanges == 3
    ran.require_equal()


def test_keys_of_another_cohort_serve_no_round(tmp_path: Path) -> None:
    """As after an attempt that was aborted: whoever is invited next is not invited again."""
    drawn = {"cohort": {"clients_per_round": 4}}
    ran = Deployment.of(settings({"layer": "masking"}, **drawn), tmp_path)
    ran.rounds(1)
    lookahead = ran.coordinator._next_keys
    first, second = (ran.coordinator._plan.invited(round_) for round_ in (1, 2))
    assert first.tolist() != second.tolist()
    kept = lookahead._kept
    here = ran.coordinator.channel.sessions()
    assert lookahead.take(second, here) is kept is not None
    assert lookahead.take(second, here) is None  # once
    lookahead._kept = kept
    assert lookahead.take(first, here) is None
    ran.rounds(2)
    ran.require_equal()


@pytest.mark.claim("hosts-keys-ahead")
def test_an_attempt_that_is_aborted_is_begun_again_with_new_keys(tmp_path: Path) -> None:
    """It ended before those of the next were agreed on; what they were to be serves nothing."""
    ran = Deployment.of(settings(MASKS), tmp_path)
    ran.rounds(1)
    due = ["UPLOAD"]

    def losing(label: str, client: int, data: bytes) -> list[bytes]:
        return [] if client == 3 and label in due and due.pop() else [data]

    ran.transport.back = losing
    ran.transport.labels.clear()
    ran.rounds(1)
    assert ran.last.attempts == 2
    assert ran.transport.labels == ["UPLOAD", "greeting", *STAGES]
    ran.rounds(1)
    assert ran.last.exchanges == 3
    ran.require_equal()


def test_a_site_that_is_started_anew_between_rounds_misses_none(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)
    ran.rounds(1)
    ran.kill(2)
    ran.restart(2)
    ran.rounds(1)
    assert ran.transport.log == [(2, "no session with the server has begun")]
    assert ran.clients[2].tolist() == [0, 1, 2, 3, 4]
    assert ran.transport.labels.count("greeting") == 2
    ran.require_equal()


def test_a_site_that_never_answers_is_asked_twice_at_most(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS, **TEN), tmp_path)
    asked: list[str] = []

    def sent(label: str, client: int, data: bytes) -> list[bytes]:
        asked.extend([label] if client == 2 else [])
        return [data]

    def silent(label: str, client: int, data: bytes) -> list[bytes]:
        return [b""] if client == 2 and label != "greeting" else [data]

    ran.transport.out, ran.transport.back = sent, silent
    ran.rounds(1)
    assert asked == ["greeting", "ADVERTISE", "greeting", "ADVERTISE"]
    assert 2 not in ran.clients[1]


def test_a_half_that_was_lost_answers_no_second_time(tmp_path: Path) -> None:
    """A site that is started anew in mid-round takes no more part in it."""
    ran = Deployment.of(settings(MASKS, **TEN), tmp_path)
    begun = []

    def restarting(label: str, client: int, data: bytes) -> list[bytes]:
        if client == 2:
            begun.append(data)
        if client == 2 and label == "SHARES":
            ran.kill(2)
            ran.restart(2)
        return [data]

    ran.transport.out = restarting
    ran.rounds(1)
    assert 2 not in ran.clients[1]
    assert ran.transport.log == [(2, "no session with the server has begun")]
    site = ran.site(2)
    site.answer(begun[0])
    for data in begun[1:]:
        with pytest.raises(ProtocolError, match="belongs to another agreement"):
            site.answer(data)


@pytest.mark.claim("hosts-killed-site")
def test_the_journal_refuses_a_round_that_was_begun(tmp_path: Path) -> None:
    """Even where the server itself begins an attempt a second time."""
    ran = Deployment.of(settings(MASKS), tmp_path)
    ran.rounds(1)
    again = open_coordinator(ran.layout, ran.transport, attempts=1)  # it has forgotten all
    for client in range(5):
        ran.kill(client)
        ran.restart(client)
    with pytest.raises(ProtocolError, match="round 1 was begun 1 times"):
        again.run_round()
    assert {reason for _, reason in ran.transport.log} == {
        "round 1 is not beyond round 2, the last one begun"
    }


def copied(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def put_back(folder: Path, files: Mapping[str, bytes], *names: str) -> None:
    for name in names:
        (folder / name).write_bytes(files[name])


@pytest.mark.claim("hosts-killed-site")
def test_a_copy_of_private_state_is_refused(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS, **TEN), tmp_path)
    home = ran.layout.site(2) / "state"
    ran.rounds(1)
    ran.coordinator.finish()
    taken = copied(home)
    ran.rounds(1)
    ran.coordinator.finish()
    ran.kill(2)
    put_back(home, taken, "private.state")
    with pytest.raises(
        CheckpointError, match="this is an old copy, not the state that was saved last"
    ):
        ran.restart(2)
    put_back(home, taken, "private.ticket")  # with its ticket, and an old journal with it
    put_back(home, taken, "journal")
    ran.restart(2)
    ran.rounds(1)
    assert 2 not in ran.clients[3]
    assert "is older: it is an old copy" in ran.transport.log[1][1]


def test_a_server_that_goes_on_from_an_old_checkpoint_is_told_so(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)
    ran.rounds(1)
    ran.coordinator.finish()
    old = ran.layout.checkpoint.read_bytes()
    ran.rounds(1)
    ran.coordinator.finish()
    ran.layout.checkpoint.write_bytes(old)
    ran.coordinator = open_coordinator(ran.layout, ran.transport)
    ran.coordinator.resume()
    ran.transport.log.clear()
    with pytest.raises(ProtocolError):
        ran.rounds(1)
    assert {client for client, _ in ran.transport.log} == set(ran.layout.sites())
    assert all("went on from an old checkpoint" in why for _, why in ran.transport.log)


def test_private_state_is_sealed(tmp_path: Path) -> None:
    ran = Deployment.of(settings(), tmp_path)
    ran.rounds(1)
    ran.coordinator.finish()
    site = ran.site(2)
    (state,) = (ran.layout.site(2) / "state").glob("private.state")
    for values in site.tables().values():
        assert np.ascontiguousarray(values).tobytes() not in state.read_bytes()
    assert state.stat().st_mode & 0o077 == 0
    key = ran.layout.site(2) / "key"
    key.write_bytes(bytes(32))
    ran.kill(2)
    with pytest.raises(CheckpointError, match="does not open"):
        ran.restart(2)


def test_a_server_that_was_killed_goes_on(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)
    ran.rounds(1)
    ran.coordinator = open_coordinator(ran.layout, ran.transport)
    ran.coordinator.resume()
    ran.rounds(2)
    assert ran.coordinator.public.round == 3
    ran.require_equal()


@pytest.mark.parametrize("layers", [(), (MASKS,)], ids=["plain", "masks"])
@pytest.mark.parametrize("completed", [0, 1])
@pytest.mark.parametrize("finished", [False, True], ids=["middle", "end"])
def test_a_server_that_lost_its_state_costs_no_private_table(
    layers: Any, completed: int, finished: bool, tmp_path: Path
) -> None:
    """One of before round 1 (or none) knows of no sum, as a site without an attempt does not."""
    ran = Deployment.of(settings(*layers), tmp_path)
    ran.rounds(completed)
    old = ran.layout.checkpoint.read_bytes() if completed else None
    ran.rounds(2)
    if finished:
        ran.coordinator.finish()
    before = {name: values.copy() for name, values in ran.site(2).tables().items()}
    ran.layout.checkpoint.unlink()
    ran.coordinator = open_coordinator(ran.layout, ran.transport)
    if old is not None:
        ran.layout.checkpoint.write_bytes(old)
        ran.coordinator.resume()
    with pytest.raises(ProtocolError, match="was begun 3 times"):
        ran.rounds(1)
    assert any("went on from an old checkpoint" in why for _, why in ran.transport.log)
    ran.kill(2)
    ran.restart(2)
    for name, values in ran.site(2).tables().items():
        assert np.array_equal(values, before[name])


class _Killed(BaseException):
    """Nobody handles it."""


@pytest.mark.parametrize("stage", ["ADVERTISE", "SHARES", "UPLOAD", "CONFIRM", "REVEAL"])
def test_a_server_that_is_killed_in_a_round_goes_on_or_says_why_not(
    stage: str, tmp_path: Path
) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)

    def killing(label: str, client: int, data: bytes) -> list[bytes]:
        if label == stage:
            raise _Killed
        return [data]

    ran.transport.back = killing
    with pytest.raises(_Killed):
        ran.rounds(1)
    ran.transport.back = lambda label, client, data: [data]
    ran.coordinator = open_coordinator(ran.layout, ran.transport)
    ran.coordinator.resume()
    if stage == "REVEAL":
        with pytest.raises(ProtocolError, match="this round is lost: clients reveal only once"):
            ran.rounds(1)
    else:
        ran.rounds(2)
    ran.require_equal()


def test_a_round_that_too_few_answer_changes_nothing(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path, attempts=2)
    ran.rounds(1)
    before = ran.coordinator.public
    for client in (0, 1, 2):
        ran.kill(client)
    with pytest.raises(ProtocolError, match="round 2 was begun 2 times"):
        ran.coordinator.run_round()
    assert ran.coordinator.public is before
    for client in (0, 1, 2):
        ran.restart(client)
    ran.rounds(1)
    assert ran.clients[2].tolist() == [0, 1, 2, 3, 4]
    ran.require_equal()


def test_a_round_that_was_revealed_in_part_is_not_begun_again(tmp_path: Path) -> None:
    """Clients would refuse it, and nothing is told but that."""
    ran = Deployment.of(settings(MASKS), tmp_path)
    ran.rounds(1)
    before = ran.coordinator.public

    def lost(label: str, client: int, data: bytes) -> list[bytes]:
        return [] if label == "REVEAL" and client < 3 else [data]

    ran.transport.back = lost
    with pytest.raises(ProtocolError, match="aborted after clients had revealed"):
        ran.coordinator.run_round()
    assert ran.transport.labels.count("REVEAL") == 2
    assert ran.transport.labels[-1] == "REVEAL"
    assert ran.coordinator.public is before


def test_what_has_no_parts_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """Denoisers without mixes: they assume a channel that hides who sends."""
    config = parse_config(settings({"layer": "virtual-ratings"}, {"layer": "denoisers"}))
    federation = build_federation(config, load_dataset(config, None).task(0))
    with pytest.raises(ConfigError) as refused:
        provision(federation, Layout(tmp_path))
    assert refused.value.key == "protection"


@pytest.mark.claim("hosts-own-noise")
def test_noise_is_added_at_the_sites(tmp_path: Path) -> None:
    """Little noise, and a clip that nobody reaches: near the plain sums, never the same twice."""
    layers = (
        {"layer": "clip", "norm": 16.0},
        {"layer": "skellam", "noise_multiplier": 1e-4},
        MASKS,
    )
    tables, moves = [], {"rounds": 1, "rank": 2}
    for name in ("one", "two"):
        ran = Deployment.of(settings(*layers, algorithm=moves), tmp_path / name)
        secrets = {n: (ran.layout.site(n) / "key").read_bytes() for n in ran.layout.sites()}
        plain = Deployment.of(settings(algorithm=moves), tmp_path / f"{name}-plain")
        for client, secret in secrets.items():  # sites draw their first tables alike
            (plain.layout.site(client) / "key").write_bytes(secret)
            shutil.rmtree(plain.layout.site(client) / "state")
            plain.kill(client)
            plain.restart(client)
        ran.rounds(1)
        plain.rounds(1)
        expected = plain.coordinator.public.table
        moved = np.abs(expected - plain.twin(0).public.table).max()
        assert np.median(np.abs(ran.coordinator.public.table - expected)) < moved / 10
        tables.append(ran.coordinator.public.table)
    one, two = tables
    assert (one != two).mean() > 0.9


@pytest.mark.parametrize("layers", [(), (MASKS,), SHARED], ids=["plain", "masked", "shared"])
def test_a_number_that_only_a_server_vouches_for_stops_no_site(
    layers: tuple[Mapping[str, Any], ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attempt at the last round there is, and then rounds as before it."""
    ran = Deployment.of(settings(*layers, algorithm={"rounds": 5}), tmp_path, attempts=1)
    ran.rounds(1)
    encode = Request.encode
    with monkeypatch.context() as lying:
        lying.setattr(Request, "encode", lambda told: encode(replace(told, round=5)))
        lying.setattr(Statement, "require_same", lambda self, told: None)
        with suppress(ProtocolError):
            ran.rounds(1)
    for client in ran.layout.sites():
        ran.kill(client)
        ran.restart(client)
    ran.coordinator = open_coordinator(ran.layout, ran.transport, attempts=1)
    ran.coordinator.resume()
    ran.rounds(2)
    assert len(ran.last.clients) == len(ran.layout.sites())
    assert not silences(tmp_path)


@pytest.mark.claim("hosts-private-starts")
@pytest.mark.parametrize("name", ["pmf", "fedmf", "fedncf", "pfedrec", "fedrap", "fed3cr", "furl"])
def test_first_private_tables_do_not_follow_from_the_seed(name: str, tmp_path: Path) -> None:
    """Two deployments of one configuration: whoever has it knows where no client began."""
    raw = settings(algorithm={"name": name, "rounds": 1})
    one, two = (Deployment.of(raw, tmp_path / each) for each in ("one", "two"))
    for client in one.layout.sites():
        here, there = one.site(client).tables(), two.site(client).tables()
        assert here.keys() == there.keys()
        drawn = [each for each in here if here[each].any()]  # optimizers begin at zero
        assert drawn
        for each in drawn:
            assert (here[each] != there[each]).mean() > 0.9, each
        assert any(
            (here[each] != one.site(1 - min(client, 1)).tables()[each]).any() for each in drawn
        )
    assert np.array_equal(one.coordinator.public.table, two.coordinator.public.table)
