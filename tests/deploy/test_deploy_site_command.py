"""What a site's owner is told of it, and the price that it keeps."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from audits.cli import main
from secure_fedrec.algorithms.base import PublicState
from secure_fedrec.engines.distributed.site_state import MOST_SAT_OUT
from secure_fedrec.errors import HaltedError, ProtocolError, SitsOutError
from tests.deploy.memory import Deployment
from tests.deploy.test_deploy_halt import NOISED
from tests.deploy.test_deploy_rounds import MASKS, settings


def shown(ran: Deployment, client: int, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """As the owner sees it while the site runs."""
    own = ran.layout.site(client)
    assert main(["site", "show", "--json", str(ran.layout.agreement), str(own)]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.claim("hosts-price")
def test_a_client_keeps_its_price(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A server that moves the state by an ulp gets as many noised sums as there are rounds."""
    ran = Deployment.of(settings(*NOISED, algorithm={"rounds": 2}), tmp_path)
    first = ran.coordinator.public
    prices = [shown(ran, 3, capsys)]
    assert prices[0]["epsilon_spent"] == 0
    assert prices[0]["epsilon_left"] == prices[0]["epsilon"] > 0
    for number in (1, 2):
        ran.rounds(1)
        prices.append(shown(ran, 3, capsys))
        assert prices[-1]["noised_uploads"] == number
    spent = [each["epsilon_spent"] for each in prices]
    assert spent == sorted(set(spent))
    assert spent[-1] == prices[0]["epsilon"]
    assert prices[-1]["epsilon_left"] == 0
    for site in (ran.site(client) for client in ran.layout.sites()):
        site._kept = site._kept.__class__(tables=site._kept.tables)
    ran.coordinator._settled.clear()
    table = first.table * (1 + 2**-40)
    ran.coordinator.public = PublicState(round=0, table=table, extras=first.extras)
    with pytest.raises(ProtocolError):
        ran.rounds(1)
    refused = {client for client, why in ran.transport.log if "budget is spent" in why}
    assert refused == set(ran.layout.sites())


@pytest.mark.claim("hosts-price")
def test_an_upload_that_came_to_nothing_is_paid_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever has it may take the masks off later; before UPLOAD nothing has left."""
    ran = Deployment.of(settings(*NOISED, algorithm={"rounds": 3}), tmp_path)

    def lost(stage: str) -> None:
        ran.transport.back = lambda label, client, data: [] if label == stage else [data]
        with pytest.raises(ProtocolError):
            ran.rounds(1)
        ran.transport.back = lambda label, client, data: [data]

    lost("SHARES")
    assert shown(ran, 3, capsys)["noised_uploads"] == 0
    lost("UPLOAD")
    assert shown(ran, 3, capsys)["noised_uploads"] > 0


def test_what_is_not_noised_is_not_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Deployment.of(settings(MASKS), tmp_path)
    ran.rounds(1)
    found = shown(ran, 3, capsys)
    assert (found["noised_uploads"], found["epsilon"], found["epsilon_left"]) == (0, None, None)
    own = str(ran.layout.site(3))
    ran.kill(3)
    assert main(["site", "show", str(ran.layout.agreement), own]) == 0
    told = capsys.readouterr().out
    assert "client 3, roster 1" in told
    assert "no noise" in told
    assert "takes part" in told


def test_a_halted_client_goes_on_with_its_owners_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Deployment.of(settings(), tmp_path)
    own = ran.layout.site(3)
    assert main(["site", "resume", str(own), "why"]) == 2
    assert "is not halted" in capsys.readouterr().err
    halted = ran.site(3)._sealed.halted
    for number in range(1, MOST_SAT_OUT + 1):
        with pytest.raises(SitsOutError), halted.on_own_data():
            raise ValueError("a value")
        assert shown(ran, 3, capsys)["sat_out"] == number
        assert shown(ran, 3, capsys)["halted"] is None
    with pytest.raises(HaltedError), halted.on_own_data():
        raise ValueError("a value")
    assert "ValueError" in str(shown(ran, 3, capsys)["halted"])
    ran.rounds(1)
    assert "halted" in ran.last.left_out[3]
    assert main(["site", "resume", str(own), "looked at it"]) == 0
    kept = own / "state" / "resumed"
    assert str(kept) in capsys.readouterr().out
    assert "a value" in kept.read_text()
    assert "resumed: looked at it" in kept.read_text()
    assert shown(ran, 3, capsys)["halted"] is None
    assert shown(ran, 3, capsys)["sat_out"] == 0
    ran.rounds(1)
    assert 3 in ran.last.clients


@pytest.mark.parametrize("action", ["show", "resume"])
def test_what_is_no_site_is_said(
    action: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = Deployment.of(settings(), tmp_path)
    none = str(tmp_path / "sites" / "77")
    words = [str(ran.layout.agreement), none] if action == "show" else [none, "why"]
    assert main(["site", action, *words]) == 2
    assert "does not hold the state of a site" in capsys.readouterr().err
    assert not (tmp_path / "sites" / "77").exists()


def test_noise_without_a_price_is_sent_as_often_as_there_are_rounds(tmp_path: Path) -> None:
    """Found by attacking: an infinite price was never above an infinite budget."""
    layers = (
        {"layer": "clip", "norm": 16.0},
        {"layer": "skellam", "noise_multiplier": 1e-4},
        MASKS,
    )
    plan = Deployment.of(settings(*layers, algorithm={"rounds": 2}), tmp_path).site(3)._plan
    assert plan.budget == math.inf
    plan.require_affordable(2)
    with pytest.raises(ProtocolError, match="budget is spent"):
        plan.require_affordable(3)


def test_show_says_why_a_site_does_not_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its mark is empty, as a full disk leaves it; its journal is another federation's, or gone."""
    ran, beside = (Deployment.of(settings(seed=seed), tmp_path / str(seed)) for seed in (3, 4))
    for each in (ran, beside):
        each.rounds(1)
    own, other = ran.layout.site(3) / "state", beside.layout.site(3) / "state"
    (own / "halted").touch()
    (own / "sat-out").write_bytes(b"\xff looked")
    found = shown(ran, 3, capsys)
    assert "disk was full" in str(found["halted"])
    assert found["sat_out"] == MOST_SAT_OUT
    assert main(["site", "resume", str(ran.layout.site(3)), "looked"]) == 0
    capsys.readouterr()
    assert shown(ran, 3, capsys)["refused"] is None
    (own / "journal").write_bytes((other / "journal").read_bytes())
    assert "of another federation" in str(shown(ran, 3, capsys)["refused"])
    (own / "journal").unlink()
    assert main(["site", "show", str(ran.layout.agreement), str(ran.layout.site(3))]) == 2
    assert "journal" in capsys.readouterr().err
