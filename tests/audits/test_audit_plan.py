"""``secure-fedrec plan``: the figures of a deployment, where they come from, what is refused."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from secure_fedrec.accounting import claim, gaussian_events
from secure_fedrec.planning import costs
from secure_fedrec.planning.calibration import Calibration
from secure_fedrec.planning.workload import calibrate
from secure_fedrec.protection.masking import MaskingConfig, find_parameters
from secure_fedrec.protection.masking.config.degrees import Adversary

Command = Callable[..., tuple[int, str, str]]
Refusal = Callable[..., str]

MILLION = (
    *("plan", "--clients", "1000000", "--cohort", "10000"),
    *("--dropout", "0.1", "--corrupt", "0.1", "--dim", "74120"),
)
SMALL = ("plan", "--clients", "40", "--dim", "500")
SERVERS: tuple[Adversary, ...] = ("curious", "active")


@pytest.fixture(scope="module")
def measured() -> Calibration:
    """One calibration of this machine, for the tests that do not look at times."""
    return calibrate(MaskingConfig.for_cohort(8, bits=32, length=16, layout_hash=bytes(32)))


@pytest.fixture
def calibrated(measured: Calibration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "calibrate", lambda config: measured)


def figures(plan: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {figure["name"]: figure for figure in plan["figures"]}


def planned(command: Command, *words: str) -> Any:
    code, out, err = command(*words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def test_a_million_clients_get_figures_and_bounds_for_both_servers(command: Command) -> None:
    code, out, err = command(*MILLION)
    assert (code, err) == (0, "")
    head, curious, active = out.split("\n\n")
    assert head.startswith("1,000,000 clients, 10,000 in a round")
    assert curious.startswith("masked sum against an honest-but-curious server\n")
    assert active.startswith("masked sum against an active server\n")
    for adversary, block in zip(SERVERS, (curious, active), strict=True):
        found = find_parameters(
            10_000, corrupt=0.1, dropout=0.1, adversary=adversary, roster=1_000_000
        )
        rows = dict(line.strip().split("  ", 1) for line in block.splitlines()[1:])
        expected = {
            "graph degree": (f"{found.degree} neighbours", "smallest degree with all privacy"),
            "threshold": (f"{found.threshold} shares", "shares that restore a secret"),
            "client sends": ("bytes", "sum of the messages above"),
            "client receives": ("bytes", "sum of the messages above"),
            "client time": ("CPU s", "measured now"),
            "server time, no dropouts": ("CPU s", "n self masks"),
            "server time, 1000 dropouts": ("CPU s", "and for each dropout a secret"),
            "epsilon per round, server": ("4.729 at delta 1e-05", "q = 1: the server knows"),
            "privacy: corrupt neighbours": ("log2 probability", "(n - c) P[HG("),
        }
        for name, (value, source) in expected.items():
            assert value in rows[name], name
            assert source in rows[name], name
    assert "its energy tells who took part" in curious
    assert "window check" in active
    assert "window check" not in curious


@pytest.mark.usefixtures("calibrated")
def test_the_json_holds_the_same_plans_in_numbers(command: Command) -> None:
    result = planned(command, *SMALL, "--cohort", "20")
    assert result["deployment"]["clients"] == 40
    curious, active = result["plans"]
    assert [curious["adversary"], active["adversary"]] == ["curious", "active"]
    for plan in (curious, active):
        rows = figures(plan)
        assert all(figure["source"] and figure["unit"] for figure in rows.values())
        parameters = plan["parameters"]
        assert parameters["n"] == 20
        assert rows["graph degree"]["value"] == parameters["degree"] == 19
        sent = sum(m["size"] for m in plan["messages"] if m["direction"] == "up")
        assert rows["client sends"]["value"] == sent > 500 * 4
        honest = parameters["min_survivors"] - parameters["corrupt_clients"]
        assert rows["honest among them at least"]["value"] == honest


@pytest.mark.usefixtures("calibrated")
def test_a_tail_floor_is_planned_against_a_curious_server(command: Command) -> None:
    words = (*SMALL, "--adversary", "curious", "--tail-floor", "5")
    (curious,) = planned(command, *words)["plans"]
    figure = figures(curious)["clients behind a summed row at least"]
    assert figure["value"] == 5
    assert "a round of masked counts comes before" in figure["source"]


@pytest.mark.usefixtures("calibrated")
def test_no_sampling_of_a_cohort_counts_where_clients_bring_the_noise(command: Command) -> None:
    curious, active = planned(command, *SMALL, "--cohort", "20", "--noise-multiplier", "3")["plans"]
    whole = claim(gaussian_events(3, rounds=1), adversary="server", delta=1e-5).epsilon
    for plan in (curious, active):
        rows = figures(plan)
        assert rows["epsilon per round, server"]["value"] == whole
        assert rows["epsilon per round, outsider"]["value"] == whole
    (everybody,) = planned(command, *SMALL, "--adversary", "curious")["plans"]
    row = figures(everybody)["epsilon per round, outsider"]
    assert row["source"].startswith("q = 1: all clients take part")


@pytest.mark.usefixtures("calibrated")
def test_a_budget_finds_the_noise_that_meets_it(command: Command) -> None:
    words = (*SMALL, "--adversary", "active", "--epsilon-per-round", "2", "--delta", "1e-6")
    rows = figures(planned(command, *words)["plans"][0])
    assert 1.99 < rows["epsilon per round, server"]["value"] <= 2
    assert rows["epsilon per round, server"]["unit"] == "at delta 1e-06"
    assert "epsilon = 2 per round" in rows["noise multiplier"]["source"]


@pytest.mark.usefixtures("calibrated")
def test_a_clip_plans_skellam_noise_in_the_ring(command: Command) -> None:
    words = (*SMALL, "--adversary", "active", "--clip", "2", "--fraction-bits", "8")
    plan = planned(command, *words)["plans"][0]
    rows = figures(plan)
    assert "Skellam noise" in rows["epsilon per round, server"]["source"]
    # Rounding lengthens a contribution of norm clip, and Skellam costs a little more than Gauss.
    assert rows["epsilon per round, server"]["value"] > 4.729
    assert rows["correctness: sum leaves the ring"]["value"] <= -40
    honest = plan["parameters"]["min_survivors"] - plan["parameters"]["corrupt_clients"]
    share = rows["noise of one client"]["value"]
    assert share * honest**0.5 >= 2 * 2**8  # together one clip's worth, in ring units


@pytest.mark.usefixtures("calibrated")
@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--clients", "2"), "--clients = 2: must be between 3 and 2^24"),
        (("--cohort", "41"), "--cohort = 41: must be between 3 and 40"),
        (("--dropout", "1"), "--dropout = 1.0: must be at least 0 and below 1"),
        (("--corrupt", "nan"), "--corrupt = nan: must be finite"),
        (("--dim", "0"), "--dim = 0: must be between 1 and 2^31 - 1"),
        (("--bits", "65"), "--bits = 65: must be between 1 and 64"),
        (("--adversary", "rude"), "--adversary = 'rude': unknown (choices: curious, active, both"),
        (("--key-agreement", "rsa"), "--key-agreement = 'rsa': unknown (choices: x25519, x25519"),
        (("--min-honest", "1"), "--min-honest = 1: must be between 2 and 40"),
        (("--min-honest", "39"), "--min-honest = 39: the smallest sum holds 32 honest clients"),
        (("--tail-floor", "41"), "--tail-floor = 41: must be between 0 and 40"),
        (("--tail-floor", "5"), "--adversary = 'both': a tail floor withstands a curious server"),
        (
            ("--tail-floor", "5", "--adversary", "active"),
            "--adversary = 'active': a tail floor withstands a curious server only: an active one "
            "signs a false count and is sent the rows below the floor (choices: curious)",
        ),
        (("--privacy-bits", "0"), "--privacy-bits = 0: must be between 1 and 128"),
        (("--delta", "0"), "--delta = 0.0: must be above 0 and below 1"),
        (("--noise-multiplier", "inf"), "--noise-multiplier = inf: must be finite"),
        (("--epsilon-per-round", "-1"), "--epsilon-per-round = -1.0: must be positive"),
        (("--fraction-bits", "8"), "--fraction-bits = 8: needs --clip"),
        (
            ("--epsilon-per-round", "1", "--noise-multiplier", "1"),
            "--epsilon-per-round = 1.0: give a noise multiplier or a budget, not both",
        ),
        (("--dropout", "0.5"), "--dropout = 0.5: against an active server: only 20 of 40 clients"),
        (("--cohort", "20", "--no-beacon"), "--no-beacon = True: against an active server: an act"),
        (("--clip", "1e6", "--fraction-bits", "20"), "--fraction-bits = 20: against a curious"),
        (("--clip", "1", "--bits", "8"), "--bits = 8: against a curious server: "),
    ],
)
def test_bad_input_is_refused_by_the_name_of_its_option(
    refusal: Refusal, words: tuple[str, ...], problem: str
) -> None:
    assert refusal(*SMALL, *words).startswith(problem)


@pytest.mark.parametrize("words", [(), ("--clients", "many"), ("--clients", "9", "--dim", "x")])
def test_what_is_no_such_option_is_refused(command: Command, words: tuple[str, ...]) -> None:
    code, out, err = command("plan", *words)
    assert (code, out) == (2, "")
    assert "usage: secure-fedrec plan" in err
