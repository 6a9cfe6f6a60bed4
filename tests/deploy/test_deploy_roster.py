"""The commands that make keys and sign rosters, and a deployment under such a roster."""

from pathlib import Path

import pytest

from audits import cli
from audits.deploy.homes import Layout, open_coordinator, open_site
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.session import SERVER, Identity, Node, Role, Roster
from secure_fedrec.protection.session.operator import load_operator, node_named, read_parties
from tests.deploy.memory import Deployment, MemoryTransport
from tests.deploy.test_deploy_rounds import MASKS, settings


def run(*words: object, code: int = 0) -> None:
    assert cli.main([str(word) for word in words]) == code


def test_a_roster_of_parties_that_made_their_own_keys(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Folders that were prepared run under it, and under no other."""
    ran = Deployment.of(settings(MASKS), tmp_path)
    for client in range(5):
        ran.kill(client)
    layout: Layout = ran.layout
    run("roster", "new", "operator", tmp_path / "operator.key")
    operator = capsys.readouterr().out.strip()
    files = {"server": layout.server / "server.identity"}
    files |= {f"client:{n}": layout.site(n) / "client.identity" for n in range(5)}
    for party, file in files.items():
        file.unlink()
        run("roster", "new", party, file)
        run("roster", "add", tmp_path / "parties", party, f"{file}.pub")
    out = layout.agreement / "roster"
    out.unlink()
    sign = ("roster", "sign", tmp_path / "parties", "--operator", tmp_path / "operator.key")
    run(*sign, "--out", out, "--version", 2)
    run(*sign, "--out", out, "--version", 2, code=2)  # not above the last one
    capsys.readouterr()
    with pytest.raises(Exception, match="not signed by the pinned operator"):
        open_site(layout.agreement, layout.site(0))
    (layout.agreement / "operator.pub").write_text(operator)
    run("roster", "show", out, "--operator", operator)
    shown = capsys.readouterr().out
    assert "version 2, from round 0: 1 servers, 5 clients" in shown
    assert f"server {Identity.load(files['server']).public.hex()}" in shown
    transport = MemoryTransport({n: open_site(layout.agreement, layout.site(n)) for n in range(5)})
    ran.transport, ran.coordinator = transport, open_coordinator(layout, transport)
    ran.rounds(1)
    ran.require_equal()


def test_keys_are_not_written_over_and_parties_not_listed_twice(tmp_path: Path) -> None:
    key, parties = tmp_path / "a.identity", tmp_path / "parties"
    run("roster", "new", "client:1", key)
    before = key.read_bytes()
    run("roster", "new", "client:1", key, code=2)
    assert key.read_bytes() == before
    assert key.stat().st_mode & 0o077 == 0
    run("roster", "add", parties, "client:1", "ab" * 32)
    run("roster", "add", parties, "client:1", "cd" * 32, code=2)
    assert read_parties(parties) == {Node(Role.CLIENT, 1): b"\xab" * 32}
    run("roster", "add", parties, "client:1", "cd" * 32, "--replace")
    assert read_parties(parties) == {Node(Role.CLIENT, 1): b"\xcd" * 32}


@pytest.mark.parametrize("name", ["", "client", "client:x", "server:1", "king:0", "client:-1"])
def test_there_is_no_such_party(name: str) -> None:
    with pytest.raises(ConfigError):
        node_named(name)


@pytest.mark.parametrize("line", ["client:1", "client:1 zz", "client:1 abcd", "a b c"])
def test_a_line_that_is_none_of_a_list_is_named(line: str, tmp_path: Path) -> None:
    parties = tmp_path / "parties"
    parties.write_text("# of July\nserver " + "ab" * 32 + "  # ours\n" + line + "\n")
    with pytest.raises(ConfigError):
        read_parties(parties)


def test_a_damaged_or_open_key_of_an_operator_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "operator.key"
    run("roster", "new", "operator", key)
    whole = key.read_bytes()
    key.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(ConfigError, match="damaged"):
        load_operator(key)
    key.write_bytes(whole)
    key.chmod(0o644)
    with pytest.raises(ConfigError, match="only its owner"):
        load_operator(key)


def test_a_stack_without_a_key_of_its_own_makes_none(tmp_path: Path) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)
    run("roster", "layer-key", ran.layout.agreement, tmp_path / "key", code=2)
    assert not (tmp_path / "key").exists()


def test_nodes_of_a_roster_are_in_order(tmp_path: Path) -> None:
    key = tmp_path / "operator.key"
    run("roster", "new", "operator", key)
    listed = {SERVER: b"s" * 32, Node(Role.CLIENT, 3): b"c" * 32, Node(Role.DENOISER, 0): b"d" * 32}
    assert Roster.of(load_operator(key), listed).nodes() == sorted(listed)


def test_hosts_are_prepared_and_a_superlink_goes_with_a_certificate(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("flwr")
    config = tmp_path / "plain.toml"
    config.write_text('[data]\nname = "synthetic"\nclients = 3\n[algorithm]\nrounds = 1\n')
    out = ("--out", tmp_path / "out")
    run("deploy", config, *out, "--prepare")
    assert Layout(tmp_path / "out").sites() == [0, 1, 2]
    assert not (tmp_path / "out" / "flower").exists()
    run("deploy", config, *out, "--resume", "--superlink", "127.0.0.1:1", code=2)
    assert "goes with --certificates" in capsys.readouterr().err
    run("deploy", config, *out, "--resume", "--set", "seed=9", code=2)
    assert "belongs to a run with another configuration" in capsys.readouterr().err


def test_a_private_key_in_the_place_of_a_public_one_is_refused_and_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["roster", "new", "client:1", str(tmp_path / "one.identity")]) == 0
    secret = tmp_path / "one.identity"
    capsys.readouterr()
    words = ["roster", "add", str(tmp_path / "parties"), "client:1", str(secret)]
    assert cli.main(words) == 2
    told = capsys.readouterr().err
    assert "one.identity" in told
    assert "64 hexadecimal digits" in told
    assert secret.read_bytes().hex() not in told
    assert not (tmp_path / "parties").exists()
