"""An audit of what hosts of their own recorded finds what one of the embedded engine finds."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.cli import main
from audits.config.audit import parse_config
from audits.deploy.gather import gathered
from audits.deploy.homes import Layout
from audits.run.audit import audit
from audits.run.folder import one_writer, write_own_config
from secure_fedrec.core.files import file_digest
from secure_fedrec.core.npz import read_npz, write_npz
from secure_fedrec.errors import TranscriptError
from secure_fedrec.wire import Adversary, BlockStore, Step, Transcript
from tests.deploy.memory import Deployment
from tests.deploy.test_deploy_whole import PAILLIER

ROUNDS = 2
MASKS = {"layer": "masking", "adversary": "active", "execution": "real"}
SHARED = (
    {"layer": "virtual-ratings", "sticky": True},
    {"layer": "shared-upload", "count": 2, "floor": 3, "execution": "real"},
)


def settings(*layers: Mapping[str, Any], clients: int, attacks: list[str]) -> dict[str, Any]:
    return {
        "seed": 3,
        "data": {"name": "synthetic", "clients": clients, "items": 40},
        "algorithm": {"rounds": ROUNDS},
        "protection": list(layers),
        "recording": {"payload_rounds": [1, 2]},
        "attacks": attacks,
        "adversaries": [
            {"name": "server", "corrupt": ["server"]},
            {"name": "coalition", "corrupt": ["server", "client:3"]},
        ],
    }


def deployed(raw: Mapping[str, Any], folder: Path) -> Deployment:
    ran = Deployment.of(raw, folder, record=True)
    write_own_config(folder, ran.federation.config.as_json())
    return ran


def gather(ran: Deployment, out: Path) -> None:
    ran.coordinator.finish()
    with one_writer(out, resume=False):
        gathered(ran.federation, ran.layout, out)


def audited(raw: Mapping[str, Any], out: Path, *, resume: bool) -> Mapping[str, Any]:
    return audit(
        parse_config(raw),
        out=out,
        data_dir=None,
        resume=resume,
        command=[],
        progress=False,
        formats=("json",),
    ).report


def audited_locally(
    raw: Mapping[str, Any], ran: Deployment, out: Path, patch: pytest.MonkeyPatch
) -> Mapping[str, Any]:
    """By the embedded engine, which is handed what the sites draw under."""
    secrets = {n: (ran.layout.site(n) / "key").read_bytes() for n in ran.layout.sites()}
    patch.setattr("audits.run.audit.read_client_secrets", lambda _: secrets)
    report = audited(raw, out, resume=False)
    patch.undo()
    return report


def views(raw: Mapping[str, Any], out: Path, *corrupt: str) -> Any:
    adversary = Adversary(name="somebody", corrupt=frozenset(corrupt))
    return Transcript.open(out / "transcript").view(adversary)


@pytest.mark.parametrize(
    ("layers", "clients", "attacks"),
    [
        ((), 5, ["direct", "intersection"]),
        ((MASKS,), 10, ["sum-decoding"]),
        (({"layer": "masking", "tail_floor": 3},), 10, ["sum-decoding"]),
        ((PAILLIER,), 4, ["sum-decoding"]),
    ],
    ids=["plain", "masked", "floor", "paillier"],
)
def test_an_audit_finds_what_it_finds_locally(
    layers: tuple[Mapping[str, Any], ...],
    clients: int,
    attacks: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw, out = settings(*layers, clients=clients, attacks=attacks), tmp_path / "gathered"
    ran = deployed(raw, tmp_path / "hosts")
    ran.rounds(ROUNDS)
    gather(ran, out)
    there = audited(raw, out, resume=True)
    here = audited_locally(raw, ran, tmp_path / "local", monkeypatch)
    for key in ("findings", "verdict", "gates", "lossless"):
        assert there[key] == here[key], key
    assert any(finding["status"] == "measured" for finding in there["findings"])
    for report in (there, here):
        report["utility"].pop("rounds")  # sites tell nobody how good a round in between was
    assert there["utility"] == here["utility"]
    roles = zip(there["cost"]["roles"], here["cost"]["roles"], strict=True)
    for distributed, local in roles:
        assert distributed["vectors_per_round"] == local["vectors_per_round"]
        assert distributed["bytes_up_per_round"] > local["bytes_up_per_round"]


@pytest.mark.parametrize("noise", [False, True], ids=["exact", "noised"])
def test_what_clients_alone_measure_is_measured_again(
    noise: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the embedded engine, for all rounds; where noise makes other states, it is left out."""
    noised = ({"layer": "clip", "norm": 1.0}, {"layer": "skellam", "noise_multiplier": 0.5})
    layers = (*noised, {"layer": "masking"}) if noise else ()
    raw = settings(*layers, clients=10, attacks=["sum-decoding"])
    raw["algorithm"] |= {"name": "fedmf"}
    ran, out = deployed(raw, tmp_path / "hosts"), tmp_path / "gathered"
    ran.rounds(ROUNDS)
    gather(ran, out)
    there = audited(raw, out, resume=True)
    here = audited_locally(raw, ran, tmp_path / "local", monkeypatch)
    assert here["utility"]["final"].keys() >= {"ndcg_at_10"}
    if noise:
        assert there["utility"]["final"] == {}
    else:
        assert there["utility"] == here["utility"]
        assert there["verdict"] == here["verdict"]


def test_who_was_not_there_is_in_no_view(tmp_path: Path) -> None:
    """The twin of the audit trains without that client as well."""
    raw, out = settings(MASKS, clients=10, attacks=["sum-decoding"]), tmp_path / "gathered"
    ran = deployed(raw, tmp_path / "hosts")
    ran.rounds(1)
    ran.kill(2)
    ran.rounds(1)
    ran.restart(2)
    ran.coordinator.channel.greet()
    gather(ran, out)
    seen = views(raw, out, "server")
    uploads = [seen.messages(Step.UPLOAD, round_).senders.ids.tolist() for round_ in (1, 2)]
    assert uploads == [list(range(10)), [0, 1, *range(3, 10)]]
    report = audited(raw, out, resume=True)
    assert report["lossless"]["holds"], report["lossless"]


def test_shares_are_seen_where_they_were_sent(tmp_path: Path) -> None:
    raw, out = settings(*SHARED, clients=5, attacks=["direct"]), tmp_path / "gathered"
    ran = deployed(raw, tmp_path / "hosts")
    ran.rounds(ROUNDS)
    gather(ran, out)
    recruited = ran.federation.stack.denoisers
    for client in ran.layout.sites():
        store = BlockStore(ran.layout.site(client) / "recording" / "transcript")
        assert ("share" in store.kinds(1)) == (client in recruited)
        assert not {"upload", "denoise", "aggregate"} & set(store.kinds(1))
    assert "share" not in BlockStore(ran.layout.server / "recording" / "transcript").kinds(1)
    server, one, other, both = (
        views(raw, out, *corrupt)
        for corrupt in (["server"], ["denoiser:0"], ["denoiser:1"], ["server", "denoisers"])
    )
    assert not server.sees(Step.SHARE)
    codec, total = server.codec, 0
    upload = server.messages(Step.UPLOAD, 1, payload=True).payload
    for denoiser in (one, other):
        share = denoiser.messages(Step.SHARE, 1, payload=True)
        assert share.senders.ids.tolist() == list(range(5))
        assert not np.array_equal(share.payload.values, upload.values)
        total = total + share.payload.values
    assert len(both.messages(Step.SHARE, 1)) == 10
    aggregate = server.messages(Step.AGGREGATE, 1, payload=True).payload
    summed = np.zeros_like(aggregate.values)
    np.add.at(summed, upload.rows, upload.values + total)
    assert np.array_equal(codec.reduce(summed), aggregate.values)


def test_a_recording_that_is_not_whole_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw, hosts = settings(clients=4, attacks=["direct"]), tmp_path / "hosts"
    ran = deployed(raw, hosts)

    def refusal(name: str) -> str:
        assert main(["gather", str(hosts), "--out", str(tmp_path / name)]) == 2
        return capsys.readouterr().err

    assert "nothing to resume" in refusal("none")
    ran.rounds(1)
    assert "has recorded 1 of 2 rounds" in refusal("half")
    ran.rounds(1)
    ran.coordinator.finish()
    assert main(["gather", str(hosts), "--out", str(tmp_path / "whole")]) == 0
    capsys.readouterr()
    assert main(["attack", str(tmp_path / "whole" / "transcript"), "--quiet", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 2
    told = hosts / "sites/2/recording/transcript/rounds/000002/model-000.npz"
    columns = read_npz(told)
    write_npz(told, {**columns, "table": columns["table"] + 1})
    assert "is not what client 2 recorded" in refusal("altered")
    seal = json.loads((told.parent / "seal.json").read_text())
    seal["files"][told.name] = file_digest(told)
    (told.parent / "seal.json").write_text(json.dumps(seal))
    assert "round 2: client 2 was told another public state" in refusal("told")
    data = hosts / "sites/1/data.npz"
    columns = read_npz(data)
    write_npz(data, {**columns, "example.ratings": columns["example.ratings"][::-1]})
    assert "holds other examples than the data set" in refusal("data")
    (hosts / "sites/0/recording").rename(tmp_path / "elsewhere")
    write_npz(data, columns)
    assert "does not have a recording: deploy with --record" in refusal("missing")


@pytest.mark.parametrize(
    ("layers", "clients"), [((), 5), ((MASKS,), 10), (SHARED, 5)], ids=["plain", "masked", "shared"]
)
def test_a_recording_that_lost_a_file_or_is_of_two_runs_is_refused(
    layers: tuple[Mapping[str, Any], ...], clients: int, tmp_path: Path
) -> None:
    """Each file alone; recordings of a site and of the server from a run with the same bits."""
    raw, site, server = settings(*layers, clients=clients, attacks=["direct"]), "sites/2", "server"
    for run in ("one", "other"):
        ran = deployed(raw, tmp_path / run)
        ran.rounds(ROUNDS)
        ran.coordinator.finish()
    whole, other = tmp_path / "one", tmp_path / "other"

    def refuses(why: str) -> None:
        out = whole / "gathered"
        with pytest.raises(TranscriptError, match=why), one_writer(out, resume=False):
            gathered(ran.federation, Layout(whole), out)
        shutil.rmtree(out)

    files = [file for part in (site, server) for file in whole.glob(f"{part}/recording/*/*/*/*")]
    assert len(files) >= 16
    aside = tmp_path / "aside"
    for file in files:
        file.rename(aside)
        refuses("is not what .* recorded|has no seal")
        aside.rename(file)
    for part in (site, server):
        kept = whole / part / "recording"
        kept.rename(aside)
        shutil.copytree(other / part / "recording", kept)
        refuses("a recording of another run")
        shutil.rmtree(kept)
        shutil.copytree(whole / "sites/1/recording", kept)
        refuses("a recording of another host")
        shutil.rmtree(kept)
        aside.rename(kept)
    lost = whole / site / "recording/truth/rounds/000001"
    lost.rename(aside)
    refuses("not have a recording of round 1, in which it took part")
    aside.rename(lost)
    with one_writer(whole / "gathered", resume=False):
        gathered(ran.federation, Layout(whole), whole / "gathered")
