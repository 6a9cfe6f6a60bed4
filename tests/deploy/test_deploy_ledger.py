"""What a client counts in its journal: states that it computed from, noise that it has paid for."""

import os
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from audits.deploy.homes import open_coordinator
from secure_fedrec.core.files import replace_file
from secure_fedrec.engines.distributed import Keys, MeanCoordinator, MeanSite, Site
from secure_fedrec.engines.distributed import coordinator as servers
from secure_fedrec.engines.distributed.site_state import SiteState
from secure_fedrec.errors import ConfigError, HaltedError, ProtocolError
from secure_fedrec.protection.means import MaskedMean, NoisedMean
from secure_fedrec.protection.session import SERVER, Identity, Node, Role, Roster
from secure_fedrec.protection.session.journal import MOST_STATES_BESIDE
from tests.deploy.keys import give_keys
from tests.deploy.mean_sites import Sites, task_of
from tests.deploy.memory import Deployment
from tests.deploy.test_deploy_halt import NOISED
from tests.deploy.test_deploy_rounds import MASKS, settings

FILES = ("private.state", "private.ticket")


@pytest.mark.claim("hosts-bounded-states")
@pytest.mark.parametrize("layers", [(), (MASKS,)], ids=["plain", "masked"])
@pytest.mark.parametrize("restarted", [False, True])
def test_a_server_asks_about_as_many_states_as_there_are_rounds(
    layers: tuple[Any, ...], restarted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attempts that open nothing, each from another state: whoever bears one would say so."""
    rounds = 4
    ran = Deployment.of(settings(*layers, algorithm={"rounds": rounds}), tmp_path, attempts=1)
    first, computed = ran.coordinator.public, 0
    ran.transport.back = lambda label, client, data: [data] if label == "greeting" else []
    trained = Site._trained

    def counted(site: Site, *told: Any) -> Any:
        nonlocal computed
        computed += site.client == 2
        return trained(site, *told)

    monkeypatch.setattr(Site, "_trained", counted)
    for number in range(rounds + MOST_STATES_BESIDE + 3):
        ran.coordinator.public = replace(first, table=first.table * (1 + number * 2.0**-20))
        with suppress(ProtocolError):
            ran.rounds(1)
        if restarted:
            ran.kill(2)
            ran.restart(2)
    assert computed == rounds + MOST_STATES_BESIDE
    assert any("public states, and there are 4 rounds" in why for _, why in ran.transport.log)


@pytest.mark.claim("hosts-bounded-states")
def test_an_attempt_that_failed_is_begun_again_and_costs_no_state(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS, algorithm={"rounds": 3}), tmp_path, attempts=1)
    ran.rounds(1)
    for _ in range(3 + MOST_STATES_BESIDE):
        ran.transport.back = lambda label, client, data: [] if label == "UPLOAD" else [data]
        with pytest.raises(ProtocolError):
            ran.rounds(1)
    ran.transport.back = lambda label, client, data: [data]
    ran.rounds(2)
    ran.require_equal()


@pytest.mark.claim("hosts-price")
def test_a_copy_of_private_state_brings_no_noise_back(tmp_path: Path) -> None:
    """Of a deployed site, by a server that says what the copy says."""
    ran = Deployment.of(settings(*NOISED, algorithm={"rounds": 2}), tmp_path, attempts=1)
    folder, kept = ran.layout.site(3) / "state", tmp_path / "kept"
    kept.mkdir()
    for name in FILES:
        shutil.copy2(folder / name, kept / name)
    first = ran.coordinator.public
    for number in range(4):
        ran.coordinator.public = replace(first, table=first.table * (1 + number * 2.0**-20))
        ran.coordinator._settled.clear()
        with suppress(ProtocolError):
            ran.rounds(1, more=False)
        ran.kill(3)
        for name in FILES:
            shutil.copy2(kept / name, folder / name)
        ran.restart(3)
    assert ran.site(3)._journal.spent == 2
    assert any("budget is spent" in why for client, why in ran.transport.log if client == 3)


@pytest.mark.claim("hosts-price")
def test_a_copy_of_a_means_state_brings_no_noise_back(tmp_path: Path) -> None:
    give_keys(tmp_path, 4)
    terms = NoisedMean(clip=1.0, noise_multiplier=2.0, rounds=2, corrupt=0.25, dropout=0.25)
    server = MeanCoordinator(terms, Keys(tmp_path / "server"))
    states = [tmp_path / str(client) / "state" for client in range(4)]
    summed = 0
    for number in range(1, 5):
        model = {"w": np.full(3, float(number)), "steps": np.array(0)}
        with suppress(ProtocolError):
            server.run_round(Sites(tmp_path, terms, dict.fromkeys(range(4), model)), task_of(model))
            summed += 1
        for state in states:
            for name in FILES if number > 1 else ():
                shutil.copy2(state.parent / name, state / name)
            for name in FILES if number == 1 else ():
                shutil.copy2(state / name, state.parent / name)
    assert summed == 2


def test_a_round_is_sat_out_whole_by_a_site_that_starts_anew(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS, algorithm={"rounds": 3}), tmp_path, attempts=1)
    for _ in range(3):
        with pytest.MonkeyPatch.context() as failing:
            site = ran.site(2)

            def failed(*_: object) -> None:
                raise ValueError("rated 5")

            failing.setattr(site, "_trained", failed)
            with suppress(ProtocolError):
                ran.rounds(1)
            ran.coordinator.public = replace(ran.coordinator.public, round=0)
        ran.kill(2)
        ran.restart(2)
    assert ran.site(2)._sealed.halted.sat_out == 1


@pytest.mark.claim("hosts-revocation")
def test_another_roster_of_the_same_version_is_refused(tmp_path: Path) -> None:
    """Whom an operator lists is one thing under one version."""
    operator = Ed25519PrivateKey.generate()
    nodes = (SERVER, *(Node(Role.CLIENT, number) for number in range(3)))
    parties = {node: Identity.generate(node).public for node in nodes}
    kept = SiteState().under(Roster.of(operator, parties, version=2))
    fewer = {node: key for node, key in parties.items() if node.number != 1}
    with pytest.raises(ConfigError, match="differs from the roster of this version"):
        kept.under(Roster.of(operator, fewer, version=2))
    later = kept.under(Roster.of(operator, fewer, version=3))
    again = SiteState.decode(later.encode())
    assert (again.roster, again.roster_hash) == (3, later.roster_hash)
    with pytest.raises(ConfigError, match="is older than roster 3"):
        again.under(Roster.of(operator, parties, version=2))


@pytest.mark.claim("hosts-revocation")
def test_a_means_site_takes_no_other_roster_of_the_same_version(tmp_path: Path) -> None:
    operator = give_keys(tmp_path, 4)
    terms = MaskedMean(clip=1.0, max_weight=5, corrupt=0.0, min_survivors=3)
    own = Keys(tmp_path / "0")
    with MeanSite(terms, own):
        pass
    listed = own.roster()
    nodes = [node for node in listed.nodes() if node != Node(Role.CLIENT, 3)]
    fewer = {node: listed.key_of(node) for node in nodes}
    for version, fits in ((listed.version, False), (listed.version + 1, True)):
        Roster.of(operator, fewer, version=version).save(own.folder / "roster")
        if fits:
            with MeanSite(terms, own):
                pass
            continue
        for _ in range(2):  # and nothing holds the journal
            with pytest.raises(ConfigError, match="differs from the roster of this version"):
                MeanSite(terms, own)


@pytest.mark.claim("hosts-bounded-states")
def test_what_is_addressed_to_one_client_is_a_state_as_well(tmp_path: Path) -> None:
    ran = Deployment.of(settings(algorithm={"name": "gpfedrec", "rounds": 2}), tmp_path, attempts=1)
    ran.rounds(1)
    first = ran.coordinator.public
    ran.transport.back = lambda label, client, data: [data] if label == "greeting" else []
    for number in range(2 + MOST_STATES_BESIDE):
        own = first.extras["table-2"] * (1 + number * 2.0**-20)
        ran.coordinator.public = replace(first, extras={**first.extras, "table-2": own})
        with suppress(ProtocolError):
            ran.rounds(1)
    counts = [ran.site(client)._journal._held.computed for client in (1, 2)]
    assert counts == [2, 2 + MOST_STATES_BESIDE]
    assert any("there are 2 rounds" in why for client, why in ran.transport.log if client == 2)


def test_an_operator_is_no_client_of_its_list() -> None:
    operator = Ed25519PrivateKey.generate()
    own = operator.public_key().public_bytes_raw()
    parties = {SERVER: Identity.generate(SERVER).public, Node(Role.CLIENT, 0): own}
    with pytest.raises(ConfigError, match="is not one of its clients"):
        Roster.of(operator, parties, version=1)


def test_a_halted_client_is_there_and_says_so(tmp_path: Path) -> None:
    """So a server that starts anew does not wait for it."""
    ran = Deployment.of(settings(), tmp_path)
    (ran.layout.site(4) / "state" / "halted").write_bytes(b"\xff")
    ran.coordinator = open_coordinator(ran.layout, ran.transport)
    ran.coordinator.channel.greet()
    assert Node(Role.CLIENT, 4) in ran.coordinator.channel.hosts
    ran.rounds(1)
    assert ran.last.left_out == {4: "its part is halted until its owner has looked"}


@pytest.mark.claim("hosts-bounded-states")
@pytest.mark.parametrize("noted", ["looked at it, nothing wrong", "\N{SUPERSCRIPT TWO}", "-7"])
def test_what_an_owner_writes_beside_the_count_does_not_end_it(noted: str, tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS, algorithm={"rounds": 9}), tmp_path)
    halted = ran.site(2)._sealed.halted
    (ran.layout.site(2) / "state" / "sat-out").write_text(noted, encoding="utf-8")
    with pytest.raises(HaltedError), halted.on_own_data():  # it counts as the last one
        raise ValueError("a value")
    assert halted.reason is not None


def test_who_was_away_at_the_end_is_told_by_a_server_that_starts_anew(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS, algorithm={"rounds": 2}), tmp_path)
    ran.rounds(1)

    def lost(label: str, client: int, data: bytes) -> list[bytes]:
        if client == 0 and label == "REVEAL":
            ran.kill(0)
            ran.restart(0)
            return []
        return [data]

    ran.transport.back = lost
    ran.rounds(1, more=False)
    assert 0 in ran.last.clients
    ran.coordinator = open_coordinator(ran.layout, ran.transport)
    ran.coordinator.resume()
    ran.require_equal()


def test_a_sum_waits_for_room_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = Deployment.of(settings(MASKS, algorithm={"rounds": 2}), tmp_path)
    save, failures, due = ran.coordinator.save, 3, 1

    def full() -> None:
        nonlocal failures
        if ran.coordinator.public.round == due and failures:
            failures -= 1
            raise OSError(28, "No space left on device", "state.npz")
        save()

    monkeypatch.setattr(ran.coordinator, "save", full)
    monkeypatch.setattr(servers, "sleep", lambda seconds: None)
    ran.rounds(1)
    assert not failures
    monkeypatch.setattr(servers, "_TRIES", 2)
    failures, due = 99, 2
    with pytest.raises(OSError, match="round 2 is summed, but cannot be saved"):
        ran.rounds(1)


@pytest.mark.parametrize("failing", ["private.ticket", "private.state"])
def test_a_full_disk_at_the_first_start_leaves_a_site_that_starts(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_keys(tmp_path, 3)
    terms = MaskedMean(clip=1.0, max_weight=5, corrupt=0.0, min_survivors=3)

    def full(path: Path, *told: Any, **options: Any) -> None:
        if path.name == failing:
            raise OSError(28, "No space left on device", str(path))
        replace_file(path, *told, **options)

    with monkeypatch.context() as disk:
        disk.setattr("secure_fedrec.engines.distributed.site_state.replace_file", full)
        with pytest.raises(OSError, match="No space"):
            MeanSite(terms, Keys(tmp_path / "0"))
    with MeanSite(terms, Keys(tmp_path / "0")):  # in the same process
        pass
    with MeanSite(terms, Keys(tmp_path / "0")):
        pass


def test_a_key_that_could_not_be_written_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_keys(tmp_path, 3)
    terms = MaskedMean(clip=1.0, max_weight=5, corrupt=0.0, min_survivors=3)
    with monkeypatch.context() as disk:

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        disk.setattr(os, "link", full)
        with pytest.raises(OSError, match="No space"):
            MeanSite(terms, Keys(tmp_path / "0"))
    with monkeypatch.context() as disk:

        def no_links(*_: object) -> None:
            raise PermissionError(1, "Operation not permitted")

        disk.setattr(os, "link", no_links)
        with MeanSite(terms, Keys(tmp_path / "1")):
            assert len((tmp_path / "1" / "key").read_bytes()) == 32
    with MeanSite(terms, Keys(tmp_path / "0")):
        assert len((tmp_path / "0" / "key").read_bytes()) == 32
    assert sorted(path.name for path in (tmp_path / "0").glob("key*")) == ["key"]


@pytest.mark.parametrize("clip", [1e300, 1e-300, {"*": 1.0, "w": 1e-300}])
def test_a_clip_that_no_float_bears_is_refused(clip: Any) -> None:
    with pytest.raises(ConfigError, match=r"protection\.clip"):
        MaskedMean(clip=clip, max_weight=1)
