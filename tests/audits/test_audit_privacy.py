"""What an audit says a run cost in privacy: which layer, against whom, over how many rounds."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audits.config.audit import parse_config
from audits.gates.gate import GateConfig, Outcome, judge
from audits.run.privacy import epsilons, prices, reader_of, readers
from audits.run.releases import ReleaseJournal
from secure_fedrec.engines import RecordedRun
from secure_fedrec.errors import CheckpointError, ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import LAYERS, BagShape, LocalDPConfig, Sizes, Stack, build_stack
from secure_fedrec.streams import Streams
from secure_fedrec.wire import Adversary

Command = Callable[..., tuple[int, str, str]]
Write = Callable[[dict[str, Any]], Path]
SERVER = Adversary(name="server", corrupt=frozenset({"server"}))
CLIENT = Adversary(name="a client", corrupt=frozenset({"client:3"}))
DENOISERS = Adversary(name="both", corrupt=frozenset({"server", "denoisers"}))
NOISED = [
    {"layer": "clip", "norm": 4.0},
    {"layer": "skellam", "noise_multiplier": 2.0, "least_count": 40},
    {"layer": "masking", "min_survivors": 30},
]
SDCF = [{"layer": "randomized-response"}, {"layer": "denoisers", "count": 5}]


@pytest.fixture
def tiny(small: dict[str, Any]) -> dict[str, Any]:
    """A noised federation of six rounds with a checkpoint after every second, and one attack."""
    small["adversaries"] = [{"name": "server", "corrupt": ["server"]}]
    small["algorithm"]["learning_rate"] = 1e-4
    small["run"] |= {"check_lossless": False, "checkpoint_every": 2}
    return small | {"attacks": ["direct"], "gates": [], "protection": NOISED}


@pytest.fixture
def audited(command: Command, write_config: Write, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """The report of an audit, which may be resumed."""

    def run(raw: dict[str, Any], *more: str) -> dict[str, Any]:
        folder = tmp_path / "run"
        code, _, err = command("audit", write_config(raw), "--out", folder, "--quiet", *more)
        assert code in {0, 1, 3}, err
        report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        return report

    return run


def stack_of(layers: list[dict[str, Any]], **changes: Any) -> Stack:
    settings = {
        table["layer"]: LAYERS[str(table["layer"])](
            **{key: value for key, value in table.items() if key != "layer"}
        )
        for table in layers
    }
    noise = changes.pop("bags", None)
    return build_stack(
        settings | changes,
        sizes=Sizes(
            n_clients=40,
            n_items=30,
            width=2,
            cohort=40,
            bags={} if noise is None else {"drafts": BagShape(width=3, most=2)},
        ),
        codec=FixedPoint(),
        streams=Streams.from_seed(1),
        bag_layers={} if noise is None else {"local-dp": noise},
    )


def test_randomized_response_states_what_a_rated_item_costs(
    tiny: dict[str, Any], audited: Callable[..., dict[str, Any]]
) -> None:
    report = audited(tiny | {"protection": SDCF})
    (statement,) = report["protection"]["privacy"]
    # The permanent answer bounds all rounds: f = 0.1, a lie with probability 0.05.
    assert statement["epsilon"] == pytest.approx(math.log(0.95 / 0.05), rel=1e-4)
    assert statement["adversary"] == "server"
    assert statement["rounds"] == 6
    for words in (
        "whether one client rated one item, as far as the reported item set tells",
        "at delta = 1e-05 over 6 rounds",
        "permanent answer, over any 6 rounds",
        "once, q = 1",
        "rated, or not (one bit)",
        "randomized response, pure epsilon 2.944",
        "assuming: coins come from a stream keyed by the operating system",
    ):
        assert words in statement["text"]


def test_reports_that_are_never_in_doubt_have_no_price() -> None:
    certain = {"layer": "randomized-response", "permanent": 0.0, "report_one": 1.0}
    assert prices(stack_of([certain | {"report_zero": 0.0}]), rounds=5) == ()
    assert prices(stack_of([{"layer": "masking"}]), rounds=5) == ()
    assert prices(stack_of(NOISED), rounds=0) == ()


def test_without_a_permanent_answer_every_round_costs() -> None:
    config = {"layer": "randomized-response", "permanent": 0.0}
    (few,) = prices(stack_of([config]), rounds=2)
    (many,) = prices(stack_of([config]), rounds=5)
    assert few.part == many.part == "reports"
    assert few.statement.epsilon == pytest.approx(2 * math.log(0.95 / 0.05), rel=1e-4)
    assert many.statement.rounds == 5
    assert many.statement.epsilon > few.statement.epsilon
    # So much that the grid of the coins would show: nothing is claimed, and the audit goes on.
    assert prices(stack_of([config]), rounds=100) == ()


def test_a_price_that_cannot_be_stated_is_refused_under_the_configured_key() -> None:
    skellam = LAYERS["skellam"](noise_multiplier=2.0, delta=1e-300)
    with pytest.raises(ConfigError, match="takes up") as refused:
        prices(stack_of(NOISED, skellam=skellam), rounds=3)
    assert refused.value.key == "protection.delta"


def test_every_reader_has_a_statement() -> None:
    assert readers([SERVER]) == readers([DENOISERS]) == ("server",)
    assert readers([CLIENT]) == ("server", "release")
    found = prices(stack_of(NOISED), rounds=3, readers=("server", "release"))
    assert [each.statement.adversary for each in found] == ["server", "release"]
    # Everybody takes part and nobody's turn is secret: no sampling, one price.
    assert found[0].statement.epsilon == found[1].statement.epsilon


def test_an_adversary_is_held_to_its_own_price() -> None:
    assert [reader_of(each) for each in (SERVER, CLIENT, DENOISERS)] == ["server", "release", None]
    stack = stack_of(NOISED)
    priced = prices(stack, rounds=3)
    epsilon = priced[0].statement.epsilon
    assert epsilons([SERVER, CLIENT, DENOISERS], stack, priced) == {
        ("server", "sums"): epsilon,
        ("server", "everything"): epsilon,
    }


def test_an_epsilon_of_a_part_covers_nothing_else() -> None:
    reports = stack_of([{"layer": "randomized-response"}])
    priced = prices(reports, rounds=3)
    assert list(epsilons([SERVER], reports, priced)) == [("server", "reports")]
    bags = stack_of(NOISED, bags=LocalDPConfig(fraction_bits=4))
    both = prices(bags, rounds=3)
    assert [each.part for each in both] == ["sums", "bags"]
    # Two prices of two parts: neither is that of both together.
    assert list(epsilons([SERVER], bags, both)) == [("server", "sums"), ("server", "bags")]


@pytest.mark.parametrize(("most", "outcome"), [(8.0, "pass"), (0.5, "fail")])
def test_a_gate_on_epsilon_is_judged_by_the_statement(
    tiny: dict[str, Any],
    audited: Callable[..., dict[str, Any]],
    most: float,
    outcome: str,
) -> None:
    tiny["gates"] = [{"metric": "epsilon", "adversary": "server", "max": most}]
    report = audited(tiny)
    (gate,) = report["gates"]
    (statement,) = report["protection"]["privacy"]
    assert 0.5 < statement["epsilon"] < 8.0
    assert gate["value"] == statement["epsilon"]
    assert gate["outcome"] == outcome
    assert gate["name"] == f"server: epsilon <= {most:g}"
    assert gate["reason"] == f"epsilon is {statement['epsilon']:.4f}"


def test_a_gate_without_a_price_is_never_a_pass() -> None:
    gate = GateConfig(metric="epsilon", adversary="server", max=8.0)
    result = judge(
        gate,
        findings=[],
        utility={},
        lossless=None,
        epsilons={("client", "everything"): 1.0, ("server", "bags"): 1.0},
    )
    assert result.outcome is Outcome.INCONCLUSIVE
    assert result.reason == "no epsilon is claimed against this adversary"


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"max": 8.0}, "needs an adversary"),
        ({"max": 8.0, "adversary": "server", "attack": "direct"}, "and no attack"),
        ({"min": 8.0, "adversary": "server"}, "upper bound"),
        ({"max": 8.0, "adversary": "server", "covers": "drafts"}, "is not sent"),
    ],
)
def test_gates_on_epsilon_that_make_no_sense_are_refused(
    settings: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem):
        GateConfig(metric="epsilon", **settings)


@pytest.mark.parametrize(
    ("layers", "corrupt"),
    [([{"layer": "masking"}], ["server"]), (SDCF, ["server", "denoisers"]), ([], ["server"])],
    ids=["masking", "denoisers", "nothing"],
)
def test_a_gate_on_epsilon_needs_a_claim_against_its_adversary(
    tiny: dict[str, Any],
    refusal: Callable[..., str],
    write_config: Write,
    tmp_path: Path,
    layers: list[dict[str, Any]],
    corrupt: list[str],
) -> None:
    tiny["adversaries"] = [{"name": "who", "corrupt": corrupt}]
    tiny["gates"] = [{"metric": "epsilon", "adversary": "who", "max": 8.0}]
    path = write_config(tiny | {"protection": layers})
    line = refusal("audit", path, "--out", tmp_path / "run", "--quiet")
    assert line.startswith("gates.adversary = 'who': no epsilon is claimed against it")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("covers", ["everything", "reports"])
def test_a_gate_on_epsilon_says_what_it_covers(
    tiny: dict[str, Any],
    audited: Callable[..., dict[str, Any]],
    refusal: Callable[..., str],
    write_config: Write,
    tmp_path: Path,
    covers: str,
) -> None:
    tiny["protection"] = SDCF
    gate = {"metric": "epsilon", "adversary": "server", "max": 3.0, "covers": covers}
    tiny["gates"] = [gate]
    if covers == "everything":  # the rows that are sent beside the reports are exact
        line = refusal("audit", write_config(tiny), "--out", tmp_path / "run", "--quiet")
        assert line.startswith("gates.covers = 'everything': no epsilon covers that: clients send ")
        assert "sums and reports" in line
        return
    (judged,) = audited(tiny)["gates"]
    assert judged["outcome"] == "pass"
    assert judged["name"] == "server: epsilon of reports <= 3"


def test_a_part_is_for_gates_on_epsilon_only() -> None:
    with pytest.raises(ConfigError, match="for the metric epsilon only"):
        GateConfig(metric="lossless", equals=True, covers="bags")


def interrupted_after(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is cut off when so many rounds were completed and one more has begun."""
    right = RecordedRun.run_round

    def cut_off(self: RecordedRun) -> Any:
        if self.completed == rounds:
            raise KeyboardInterrupt
        return right(self)

    monkeypatch.setattr(RecordedRun, "run_round", cut_off)


def test_rounds_that_a_resumed_run_repeats_are_paid_twice(
    tiny: dict[str, Any],
    audited: Callable[..., dict[str, Any]],
    command: Command,
    write_config: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, folder = write_config(tiny), tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupted_after(3, patch)  # the last checkpoint is that of round 2
        assert command("audit", path, "--out", folder, "--quiet")[0] not in {0, 1, 3}
    assert (folder / "releases.log").read_text(encoding="utf-8").split() == list("1234")
    report = audited(tiny, "--resume")
    (statement,) = report["protection"]["privacy"]
    # Rounds 3 and 4 were begun twice; 4 had perhaps released nothing, and is paid all the same.
    assert statement["rounds"] == 8
    (quiet,) = prices(stack_like(tiny), rounds=6)
    (whole,) = prices(stack_like(tiny), rounds=6, repeated=2)
    assert statement["epsilon"] == whole.statement.epsilon > quiet.statement.epsilon
    assert "2 of the rounds repeat others after an interruption" in statement["text"]
    # Judged again, the finished run has released nothing more.
    assert audited(tiny, "--resume")["protection"]["privacy"] == [statement]


def test_repeated_rounds_of_bags_are_paid_twice_as_well() -> None:
    stack = stack_of([], bags=LocalDPConfig(fraction_bits=4))
    (quiet,) = prices(stack, rounds=6)
    (whole,) = prices(stack, rounds=6, repeated=2)
    (longer,) = prices(stack, rounds=8)
    assert whole.part == "bags"
    assert whole.statement.rounds == 8
    assert quiet.statement.epsilon < whole.statement.epsilon == longer.statement.epsilon
    assert "2 of the rounds repeat others" in str(whole.statement)


def test_a_line_that_was_cut_off_is_not_glued_to_the_next(tmp_path: Path) -> None:
    """The round of an unfinished line had not begun: nothing had been sent when writing failed."""
    journal = ReleaseJournal(tmp_path)
    for round_ in (1, 2):
        journal.begin(round_)
    path = tmp_path / "releases.log"
    path.write_bytes(path.read_bytes() + b"3")
    assert journal.repeated(2) == 0
    journal.begin(3)
    assert path.read_text(encoding="utf-8") == "1\n2\n3\n"
    journal.begin(3)
    assert journal.repeated(3) == 1


def stack_like(raw: dict[str, Any]) -> Stack:
    """The stack of the small federation's size."""
    config = parse_config(raw)
    return build_stack(
        config.protection,
        sizes=Sizes(n_clients=40, n_items=60, width=4, cohort=40),
        codec=config.ring,
        streams=Streams.from_seed(config.seed),
    )


def test_a_run_that_lost_count_of_its_releases_is_not_resumed(
    tiny: dict[str, Any],
    command: Command,
    write_config: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, folder = write_config(tiny), tmp_path / "run"
    with monkeypatch.context() as patch:
        interrupted_after(3, patch)
        command("audit", path, "--out", folder, "--quiet")
    (folder / "releases.log").unlink()
    code, _, err = command("audit", path, "--out", folder, "--quiet", "--resume")
    assert code == 2
    assert "how often noise was drawn is unknown" in err


def test_runs_without_noise_keep_no_journal_and_repeat_for_nothing(
    tiny: dict[str, Any],
    audited: Callable[..., dict[str, Any]],
    command: Command,
    write_config: Write,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The coins of randomized response are those of the round: a repetition says the same."""
    tiny["protection"] = [{"layer": "randomized-response", "permanent": 0.0}]
    with monkeypatch.context() as patch:
        interrupted_after(3, patch)
        command("audit", write_config(tiny), "--out", tmp_path / "run", "--quiet")
    report = audited(tiny, "--resume")
    assert not (tmp_path / "run" / "releases.log").exists()
    (statement,) = report["protection"]["privacy"]
    assert statement["rounds"] == 6


def test_a_journal_counts_what_was_begun(tmp_path: Path) -> None:
    journal = ReleaseJournal(tmp_path)
    assert journal.repeated(0) == 0
    for round_ in (1, 2, 3, 2, 3):
        journal.begin(round_)
    assert journal.repeated(3) == 2
    assert journal.repeated(2) == 3  # round 3 was begun twice and never completed
    with pytest.raises(CheckpointError, match="does not list round 4"):
        journal.repeated(4)
    (tmp_path / "releases.log").write_text("1\ntwo\n", encoding="utf-8")
    with pytest.raises(CheckpointError, match="is damaged"):
        journal.repeated(1)
