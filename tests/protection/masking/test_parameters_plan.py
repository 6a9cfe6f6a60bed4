"""The plan of a deployment: sizes against the wire format, operations counted, refusals."""

import json
import re
from dataclasses import fields, replace
from math import ceil, inf, isfinite, log2
from pathlib import Path

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import ConfigError
from secure_fedrec.planning.calibration import Calibration
from secure_fedrec.planning.costs import Figure, Plan, plan
from secure_fedrec.planning.workload import calibrate, client_seconds, server_seconds
from secure_fedrec.protection.masking.config.degrees import Adversary
from secure_fedrec.protection.masking.config.layouts import SumLayout
from secure_fedrec.protection.masking.config.parameters import find_parameters
from secure_fedrec.protection.masking.config.policy import SitePolicy
from secure_fedrec.protection.masking.config.round_settings import KeyAgreement, MaskingConfig
from secure_fedrec.protection.masking.envelope import Context, Kind, seal
from secure_fedrec.protection.masking.federation import Federation
from secure_fedrec.protection.masking.messages.sizes import message_sizes
from secure_fedrec.protection.masking.messages.sum_messages import Survivors
from tests.statements import about

FREE = Calibration(**{field.name: 0.0 for field in fields(Calibration)})


def deployment(adversary: Adversary, **change: object) -> Plan:
    request: dict[str, object] = {
        "clients": 1_000_000,
        "cohort": 10_000,
        "dropout": 0.1,
        "corrupt": 0.1,
        "dim": 74_120,
        "adversary": adversary,
        "calibration": FREE,
        **change,
    }
    return plan(**request)  # type: ignore[arg-type]


def config_of(
    n: int, *, hybrid: bool = False, bits: int = 32, length: int = 1_000
) -> MaskingConfig:
    agreement: KeyAgreement = "x25519+mlkem768" if hybrid else "x25519"
    return MaskingConfig.for_cohort(
        n, bits=bits, length=length, layout_hash=bytes(32), key_agreement=agreement
    )


@pytest.mark.parametrize("adversary", ["curious", "active"])
def test_a_million_clients_in_cohorts_of_ten_thousand(adversary: Adversary) -> None:
    found = deployment(adversary)
    expected = find_parameters(
        10_000, corrupt=0.1, dropout=0.1, adversary=adversary, roster=1_000_000
    )
    assert found.parameters == expected
    config = found.config
    assert config.neighbours == expected.degree == {"curious": 58, "active": 116}[adversary]
    assert config.threshold == expected.threshold
    assert config.quorum == {"curious": 1, "active": 66}[adversary]
    assert config.committee == {"curious": None, "active": 92}[adversary]
    assert config.min_survivors == 9_000
    assert config.window_least == expected.window_least
    assert found.beacon == (adversary == "active")
    stated = {figure.name: figure for figure in found.figures}
    assert stated["graph degree"].value == expected.degree
    assert stated["threshold"].value == expected.threshold
    assert "hypergeometric tail: 10000 of 1000000" in stated["corrupt clients"].source
    up = [message.size for message in found.messages if message.direction == "up"]
    assert stated["client sends"].value == sum(up)
    assert all(figure.source and figure.unit for figure in found.figures)
    for bound in expected.bounds:
        assert stated[f"{bound.protects}: {bound.event}"].value == bound.log2


@pytest.mark.claim("masking-degree-and-threshold")
@pytest.mark.parametrize("adversary", ["curious", "active"])
@pytest.mark.parametrize("cohort", [64, 10_000])
def test_a_plan_adds_up_the_privacy_events_and_names_them(
    adversary: Adversary, cohort: int
) -> None:
    found = deployment(adversary, cohort=cohort)
    private = [bound for bound in found.parameters.bounds if bound.protects == "privacy"]
    (stated,) = (figure for figure in found.figures if figure.name == "privacy: all events")
    assert stated.source.partition(":")[0] == ", ".join(bound.event for bound in private)
    assert 2.0**stated.value == pytest.approx(sum(2.0**bound.log2 for bound in private))
    assert max(bound.log2 for bound in private) <= stated.value <= -40.0


@pytest.mark.parametrize("adversary", ["curious", "active"])
def test_a_plan_is_json_and_a_table(adversary: Adversary) -> None:
    found = deployment(adversary, clients=64, cohort=64)
    assert any(bound.log2 == -inf for bound in found.parameters.bounds)
    read = json.loads(json.dumps(found.as_json(), allow_nan=False))
    assert read["parameters"]["degree"] == 63
    assert len(read["figures"]) == len(found.figures)
    assert {message["step"] for message in read["messages"]} == {f"R{step}" for step in range(7)}
    lines = found.lines()
    assert len(lines) == 1 + len(found.figures)
    for figure, line in zip(found.figures, lines[1:], strict=True):
        assert line.strip().startswith(figure.name)
        assert line.endswith(figure.source)


def test_privacy_loss_comes_from_the_accountant_that_is_asked() -> None:
    asked: list[MaskingConfig] = []

    def account(config: MaskingConfig) -> list[Figure]:
        asked.append(config)
        return [Figure(name="epsilon, server", value=8.0, unit="a round", source="Skellam RDP")]

    found = deployment("active", clients=64, cohort=64, epsilon=account)
    assert asked == [found.config]
    assert found.figures[-1].name == "epsilon, server"
    assert found.as_json()["figures"][-1]["value"] == 8.0  # type: ignore[index]
    assert "Skellam RDP" in found.lines()[-1]
    silent = deployment("active", clients=64, cohort=64)
    assert not any("epsilon" in figure.name for figure in silent.figures)


# Sizes


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize(("n", "bits"), [(16, 32), (128, 24), (1_024, 64)])
def test_sizes_are_those_of_the_wire_format(n: int, bits: int, hybrid: bool) -> None:
    config = config_of(n, hybrid=hybrid, bits=bits)
    k = config.neighbours
    header = 2 + 4 + 16 + 3 * 32 + 4
    marks, kem = (n + 7) // 8, 2 * 1_216 * hybrid
    advertisement = 8 + 8 + 64 + kem
    record = 4 + 64 + 16 + 64 + 1_168 * hybrid
    pair_seals = (1_168 + 32) * k * hybrid
    expected = {
        "SETUP": len(config.encoded) + 8 + 4 + 32 + 4 + 4 * n,
        "ADVERTISE": advertisement,
        "KEYS": marks + 32 + 4 + k * (4 + advertisement + 64),
        "SHARES": 32 + 4 + k * record + pair_seals,
        "BOXES": marks + 4 + k * record + pair_seals,
        "UPLOAD": 32 + 64 + 32 + 4 + ceil(1_000 * bits / 8),
        "SURVIVORS": marks + 32 + 4 + k * (4 + 64) + 32 * ceil(log2(n)),
        "CONFIRM": 32,
        "QUORUM": 4 + config.quorum * (4 + 64),
        "REVEAL": 32 + 4 + k * 36 + 16,
        "RESULT": 32 + 32 + 4 + 4 + 32 * ceil(log2(4 * n + (config.committee or n) + 5)),
    }
    proofs = dict.fromkeys(expected, 64) | {"SHARES": 16, "UPLOAD": 16, "REVEAL": 16}
    stated = {m.kind: m.size for m in message_sizes(config)}
    assert stated == {kind: header + proofs[kind] + size for kind, size in expected.items()}


def test_the_page_states_these_sizes() -> None:
    page = Path(__file__).parents[3] / "docs" / "protection" / "masking.md"
    rows = re.findall(
        r"^\| ([\d,]+) \| (\.\d+) \| (\.\d+) \| (.*) \|$", page.read_text(), re.MULTILINE
    )
    assert len(rows) == 4
    agreements: tuple[KeyAgreement, ...] = ("x25519", "x25519+mlkem768")
    for clients, corrupt, dropout, stated in rows:
        sizes = []
        for agreement in agreements:
            config = MaskingConfig.for_cohort(
                int(clients.replace(",", "")),
                bits=32,
                length=100_000,
                layout_hash=bytes(32),
                corrupt=float(corrupt),
                dropout=float(dropout),
                key_agreement=agreement,
            )
            for direction in ("up", "down"):
                size = sum(m.size for m in message_sizes(config) if m.direction == direction)
                sizes.append(size - 400_000 * (direction == "up"))
        figures = [config.neighbours, config.threshold, *sizes]
        assert stated == " | ".join(f"{figure:,}" for figure in figures)


def test_the_envelope_is_that_of_a_signed_message() -> None:
    config = config_of(16)
    survivors = Survivors(
        survivors=np.ones(16, dtype=bool),
        root=bytes(32),
        shared_signatures=dict.fromkeys(range(15), bytes(64)),
        path=[bytes(32)] * 4,
    )
    context = Context(
        round_id=bytes(16), config_hash=bytes(32), roster_hash=bytes(32), cohort_hash=bytes(32)
    )
    message = seal(
        Ed25519PrivateKey.generate(),
        context,
        Kind.SURVIVORS,
        3,
        survivors.head(),
        survivors.payload(),
    )
    sizes = {m.kind: m.size for m in message_sizes(config)}
    assert sizes["SURVIVORS"] == len(message)


@pytest.mark.parametrize("hybrid", [False, True])
@pytest.mark.parametrize("n", [5, 11, 16])
def test_a_real_round_moves_as_many_bytes_as_planned(n: int, hybrid: bool) -> None:
    layout = SumLayout(bits=24, length=30, clients=n, largest=1_000)
    config = MaskingConfig.for_cohort(
        n,
        bits=24,
        length=layout.words,
        layout_hash=layout.hash,
        corrupt=0.0,
        dropout=0.0,
        key_agreement="x25519+mlkem768" if hybrid else "x25519",
    )
    policy = SitePolicy(corrupt=0.0, dropout=0.0)
    vectors = {number: layout.encode(np.full(30, number)) for number in range(n)}
    outcome = Federation(range(n), policy=policy).sum(config, vectors, statement=about(b"s" * 32))
    sizes = message_sizes(config)
    up = sum(message.size for message in sizes if message.direction == "up")
    down = sum(message.size for message in sizes if message.direction == "down")
    # A pair has one seal, the plan gives one to either end in SHARES and in BOXES.
    seals = 1_200 * n * (n - 1) // 2 if hybrid else 0
    assert layout.decode(outcome.words).tolist() == [sum(range(n))] * 30
    assert outcome.sent == n * up - seals
    short_paths = n * down - seals - outcome.received
    assert 0 <= short_paths <= 32 * n // 2  # a few leaves have shorter paths
    assert short_paths % 32 == 0


# Times


def counted(config: MaskingConfig, dropped: int | None) -> dict[str, float]:
    """Operations of each kind: the time when that one costs a second and the rest nothing."""
    counts = {}
    for field in fields(Calibration):
        one = replace(FREE, **{field.name: 1.0})
        counts[field.name] = (
            client_seconds(config, one)
            if dropped is None
            else server_seconds(config, one, dropped=dropped)
        )
    return {name: value for name, value in counts.items() if value}


def test_a_client_works_once_per_neighbour() -> None:
    config = config_of(64)
    assert counted(config, None) == {
        "keygen": 2,
        "agreement": 2 * 63 + 1,
        "sign": 3,
        "verify": 6 + 2 * 63 + config.quorum,
        "box": 2 * 63 + 4,
        "mask": 64,
        "digest": 1,
        "tag": 1,
        "pack": 1,
        "split": 2,
        "client_round": 1,
        "client_edge": 63,
    }
    hybrid = counted(config_of(64, hybrid=True), None)
    assert {name: hybrid[name] for name in hybrid if name.startswith("kem")} == {
        "kem_keygen": 2,
        "kem_seal": 1.5 * 63,
        "kem_open": 1.5 * 63,
    }


def test_a_server_works_once_per_client_and_once_per_open_pair() -> None:
    config = config_of(64)
    assert counted(config, 0) == {
        "sign": 6,
        "verify": 3 * 64,
        "agreement": 64,
        "box": 4 * 64,
        "tag": 64,
        "unpack": 64,
        "mask": 64,
        "server_client": 64,
        "server_edge": 64 * 63,
    }
    six = counted(config, 6)
    assert six["combine"] == six["keygen"] == 6
    assert six["mask"] == 58 + 6 * 58  # on the complete graph every survivor is a neighbour
    assert six["agreement"] == 64 + 6 * 58
    assert six["verify"] == 64 + 2 * 58
    assert six["box"] == 64 + 3 * 58


def test_every_operation_is_measured() -> None:
    config = config_of(400, bits=24, length=300_000)
    measured = calibrate(config)
    bookkeeping = {"client_round", "client_edge", "server_client", "server_edge"}
    for field in fields(Calibration):
        value = getattr(measured, field.name)
        assert isfinite(value)
        assert value > 0 or (field.name in bookkeeping and value == 0)
    # Most of a small round is bookkeeping: neither part can be nothing of both.
    assert measured.client_round + measured.client_edge > 0
    assert measured.server_client + measured.server_edge > 0
    assert client_seconds(config, measured) > measured.mask * config.neighbours


# Refusals


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"clients": 9_999}, "plan.cohort"),
        ({"cohort": 2}, "plan.cohort"),
        ({"beacon": False}, "plan.beacon"),
        ({"beacon": False, "clients": 129, "cohort": 129}, "plan.beacon"),
        ({"beacon": False, "clients": 1_000, "cohort": 64}, "plan.beacon"),
        ({"dim": 0}, "masking.length"),
        ({"bits": 65}, "masking.bits"),
        ({"corrupt": 0.85}, "masking.corrupt"),
        ({"key_agreement": "p256"}, "masking.key_agreement"),
    ],
)
def test_impossible_deployments_are_refused(change: dict[str, object], key: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        deployment("active", **change)
    assert refusal.value.key == key


def test_without_a_beacon_an_active_server_gets_the_whole_roster_and_the_complete_graph() -> None:
    found = deployment("active", clients=128, cohort=128, beacon=False)
    assert found.config.degree is None
    assert not found.beacon
    drawn = deployment("active", clients=1_000, cohort=64)
    assert drawn.config.degree is None
    assert drawn.beacon  # the cohort must not be the server's choice
    assert deployment("curious", beacon=False).config.degree is not None
