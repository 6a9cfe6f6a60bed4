"""Files of a site that do not belong together are told apart, by name, when the site is opened."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from secure_fedrec.errors import CheckpointError, ConfigError, FedRecError
from tests.deploy.memory import LONE, Deployment
from tests.deploy.test_deploy_bags import MIXES
from tests.deploy.test_deploy_rounds import HPFL, MASKS, SHARED, settings

Mixed = Callable[[Path, Path, Path], object]
"""What happens to a site's folder; beside it lie another client's, and one of its own number in
another federation."""


def removed(*names: str) -> Mixed:
    def remove(own: Path, other: Path, elsewhere: Path) -> None:
        for name in names:
            (own / "state" / name).unlink()

    return remove


def taken(name: str) -> Mixed:
    return lambda own, other, elsewhere: shutil.copy(other / name, own / name)


def from_elsewhere(name: str) -> Mixed:
    return lambda own, other, elsewhere: shutil.copy(elsewhere / name, own / name)


def both(first: Mixed, second: Mixed) -> Mixed:
    return lambda *folders: (first(*folders), second(*folders))


MIXED: dict[str, tuple[Mixed, type[FedRecError], str]] = {
    "no journal": (
        removed("journal"),
        CheckpointError,
        r"journal: is missing beside private.state",
    ),
    "no private state": (
        removed("private.state", "private.ticket"),
        CheckpointError,
        r"private.state: is missing beside journal",
    ),
    "no private state, but its ticket": (
        removed("private.state"),
        CheckpointError,
        r"private.state",
    ),
    "another client's journal": (
        taken("state/journal"),
        CheckpointError,
        r"journal: this is the journal of client 4, not of 3",
    ),
    "a journal of another federation": (
        from_elsewhere("state/journal"),
        CheckpointError,
        r"journal: this journal is of another federation",
    ),
    "another client's identity": (
        taken("client.identity"),
        ConfigError,
        r"data.npz.* is of client 3, but client.identity beside it is of client 4",
    ),
    "an identity of another federation": (
        from_elsewhere("client.identity"),
        ConfigError,
        "has another key than the one on roster",
    ),
    "another client's data": (
        taken("data.npz"),
        ConfigError,
        r"data.npz.* is of client 4, but client.identity beside it is of client 3",
    ),
    "another client's identity and data": (
        both(taken("client.identity"), taken("data.npz")),
        CheckpointError,
        r"journal: this is the journal of client 3, not of 4",
    ),
    "another client's key": (taken("key"), CheckpointError, r"private.state: "),
    "another client's private state": (
        taken("state/private.state"),
        CheckpointError,
        r"private.state: this is an old copy, not the state that was saved last",
    ),
}


@pytest.mark.claim("hosts-state-belongs")
@pytest.mark.parametrize("layers", [(), (MASKS,), SHARED], ids=["plain", "masked", "shared"])
def test_files_that_do_not_belong_together_are_refused_by_name(
    layers: tuple[dict[str, object], ...], tmp_path: Path
) -> None:
    ran, beside = (Deployment.of(settings(*layers), tmp_path / name) for name in "ab")
    ran.rounds(1)
    beside.rounds(1)
    for client in (3, 4):
        ran.kill(client)
    own, other, elsewhere = ran.layout.site(3), ran.layout.site(4), beside.layout.site(3)
    kept = tmp_path / "kept"
    shutil.copytree(own, kept)
    for mix, kind, says in MIXED.values():
        mix(own, other, elsewhere)
        before = {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
        with pytest.raises(kind, match=says):
            ran.restart(3)
        after = {path: path.read_bytes() for path in own.rglob("*") if path.is_file()}
        assert {p: data for p, data in after.items() if p.suffix != ".lock"} == {
            p: data for p, data in before.items() if p.suffix != ".lock"
        }
        shutil.rmtree(own)
        shutil.copytree(kept, own)
    for client in (3, 4):
        ran.restart(client)
    ran.rounds(2)
    assert len(ran.last.clients) == 5
    ran.require_equal()


@pytest.mark.claim("hosts-state-belongs")
def test_a_helpers_journal_is_of_its_federation(tmp_path: Path) -> None:
    raw = settings(**HPFL, bag_protection=[MIXES])
    ran, beside = (Deployment.of(raw, tmp_path / name) for name in "ab")
    beside.rounds(1)
    (name, *_) = ran.layout.helper_sites()
    ours, others = (each.layout.root / "sites" / name / "state/journal" for each in (ran, beside))
    ran.kill(LONE)
    kept = ours.read_bytes()
    shutil.copy(others, ours)
    with pytest.raises(CheckpointError, match="journal: this journal is of another federation"):
        ran.restart(LONE)
    ours.write_bytes(kept)
    ran.restart(LONE)
    ran.rounds(1)


def test_a_site_that_has_not_begun_has_neither_file(tmp_path: Path) -> None:
    """One that was started has both, and one whose state is gone altogether begins anew."""
    ran = Deployment.of(settings(MASKS), tmp_path)
    for _ in range(2):
        ran.kill(3)
        assert {path.name for path in (ran.layout.site(3) / "state").iterdir()} >= {
            "journal",
            "private.state",
        }
        ran.restart(3)
    shutil.rmtree(ran.layout.site(3) / "state")
    ran.kill(3)
    ran.restart(3)
    ran.rounds(1)
    assert len(ran.last.clients) == 5
