"""Configurations: what is read is what is kept, and what decides the bits is what is hashed."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import audits
from audits.config.audit import AuditConfig, load_config, parse_config
from audits.presets import QUICKSTART
from audits.run.build import build_federation, load_dataset
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection import STACKS

CONFIGS = sorted(Path(audits.__file__).with_name("configs").glob("*.toml"))
Write = Callable[[dict[str, Any]], Path]


def test_there_are_configurations() -> None:
    assert {path.stem for path in CONFIGS} >= {"quickstart", "plain", "fedrecpp-ml100k"}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_shipped_configuration_is_sound(path: Path) -> None:
    config = load_config(path)
    assert tuple(config.protection) in STACKS
    assert config.title != AuditConfig().title
    assert config.gates
    assert config.adversaries
    assert path.read_text(encoding="utf-8").startswith("# ")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_configuration_survives_its_own_json(path: Path) -> None:
    config = load_config(path)
    again = parse_config(config.as_json())
    assert again == config
    assert again.as_json() == config.as_json()
    assert list(again.protection) == list(config.protection)
    assert again.digest() == config.digest()


def test_the_defaults_survive_too() -> None:
    config = parse_config({})
    assert config == AuditConfig()
    assert parse_config(config.as_json()) == config


def test_every_optional_setting_survives(small: dict[str, Any]) -> None:
    small["cohort"] = {"clients_per_round": 20}
    small["recording"] |= {"payload_senders": [0, 3], "max_transcript_gb": 0.5}
    small["data"] |= {"noise": 0.25, "rank": 2, "utility_folds": 2}
    small["adversaries"].append({"name": "wire", "taps": ["network"]})
    config = parse_config(small)
    assert parse_config(config.as_json()) == config
    assert config.cohort.clients_per_round == 20
    assert config.recording.payload_senders == (0, 3)
    assert config.adversaries[-1].taps == {"network"}


TRAINING = [
    ("seed", None, 4),
    ("data", "clients", 41),
    ("data", "split", "leave-one-out"),
    ("data", "fold", 1),
    ("algorithm", "rank", 5),
    ("algorithm", "decay", 0.8),
    ("algorithm", "temperature", 1e-4),
    ("ring", "fraction_bits", 31),
    ("cohort", "clients_per_round", 30),
    ("recording", "payload_rounds", [1]),
]
JUDGEMENT = [
    ("title", None, "Another title"),
    ("attacks", None, ["lattice"]),
    ("gates", None, []),
    ("adversaries", None, [{"name": "server", "corrupt": ["server"]}]),
    ("run", "checkpoint_every", 3),
]


def changed(raw: dict[str, Any], section: str, key: str | None, value: object) -> AuditConfig:
    raw = copy.deepcopy(raw)
    if key is None:
        raw[section] = value
    else:
        raw.setdefault(section, {})[key] = value
    return parse_config(raw)


@pytest.mark.parametrize(("section", "key", "value"), TRAINING)
def test_the_digest_of_a_training_changes_with_its_settings(
    small: dict[str, Any], section: str, key: str | None, value: object
) -> None:
    other = changed(small, section, key, value)
    assert other.training_digest() != parse_config(small).training_digest()
    assert other.digest() != parse_config(small).digest()


@pytest.mark.parametrize(("section", "key", "value"), JUDGEMENT)
def test_the_digest_of_a_training_does_not_change_with_its_judgement(
    small: dict[str, Any], section: str, key: str | None, value: object
) -> None:
    other = changed(small, section, key, value)
    assert other.training_digest() == parse_config(small).training_digest()
    assert other.digest() != parse_config(small).digest()


@pytest.mark.parametrize("layer", [0, 1])
def test_the_digest_of_a_training_changes_with_its_layers(
    small: dict[str, Any], layer: int
) -> None:
    before = parse_config(small).training_digest()
    setting = ("rho", 2) if layer == 0 else ("count", 9)
    small["protection"][layer][setting[0]] = setting[1]
    after = parse_config(small).training_digest()
    del small["protection"][1]
    assert len({before, after, parse_config(small).training_digest()}) == 3


def test_spelling_out_a_default_changes_no_digest(small: dict[str, Any]) -> None:
    before = parse_config(small).digest()
    small["algorithm"]["decay"] = 0.99
    small["protection"][0]["rho"] = 1.0
    assert parse_config(small).digest() == before


def test_overrides_reach_every_level(small: dict[str, Any], write_config: Write) -> None:
    overrides = {
        "title": "Overridden",
        "seed": 9,
        "algorithm.rank": 7,
        "ring.bits": 48,
        "protection.rho": 2,
        "protection.count": 5,
        "recording.payload_rounds": [2],
        "attacks": ["direct", "lattice"],
    }
    config = load_config(write_config(small), overrides)
    assert (config.title, config.seed, config.algorithm.rank) == ("Overridden", 9, 7)
    assert config.ring.bits == 48  # a section the file lacks
    assert config.protection["virtual-ratings"].rho == 2.0
    assert config.protection["denoisers"].count == 5
    assert config.recording.payload_rounds == (2,)
    assert config.attacks == ("direct", "lattice")


def test_an_override_of_a_list_of_tables_reaches_every_table_with_the_key(
    small: dict[str, Any], write_config: Write
) -> None:
    path = write_config(small)
    config = load_config(path, {"gates.max": 0.25})
    assert [gate.max for gate in config.gates] == [None, 0.25, 0.25]
    with pytest.raises(ConfigError, match=r"no table of \[\[gates\]\] has a key 'floor'"):
        load_config(path, {"gates.floor": 0.25})


def test_an_override_reaches_a_key_that_no_table_has_yet(
    small: dict[str, Any], write_config: Write
) -> None:
    layers = [{"layer": "clip"}, {"layer": "skellam", "epsilon": 8.0}]
    small["protection"] = [*layers, {"layer": "masking", "min_survivors": 30}]
    small["gates"] = small["gates"][:1]
    path = write_config(small)
    config = load_config(path, {"protection.execution": "real", "protection.norm": 2.0})
    assert config.protection["masking"].execution == "real"
    assert config.protection["clip"].norm == 2.0


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("title=a plain word", "a plain word"),
        ('title="quoted"', "quoted"),
        ("title=a=b", "a=b"),
        ("seed=12", 12),
        ("recording.payload_rounds=[2, 3]", (2, 3)),
        ("run.check_lossless=false", False),
        ("algorithm.learning_rate=1e-1", 0.1),
        ("algorithm.user_update=rated+virtual", "rated+virtual"),
    ],
)
def test_the_command_reads_json_values_and_bare_words(
    command: Callable[..., tuple[int, str, str]],
    write_config: Write,
    small: dict[str, Any],
    tmp_path: Path,
    word: str,
    expected: object,
) -> None:
    small["algorithm"]["rounds"] = 1
    code, _, _ = command(
        *("train", write_config(small), "--out", tmp_path / "run", "--quiet"),
        *("--set", "algorithm.rank=2", "--set", word),
    )
    assert code == 0
    kept = (tmp_path / "run" / "config.json").read_text(encoding="utf-8")
    found: Any = parse_config(json.loads(kept))
    for step in word.split("=", maxsplit=1)[0].split("."):
        found = getattr(found, step)
    assert found == expected


def test_a_growing_learning_rate_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"algorithm\.decay = 1\.5: must be above 0 and at most 1"
    ):
        parse_config({"algorithm": {"decay": 1.5}})


def test_an_attack_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="attacks = 'lattice': is named twice"):
        parse_config({"attacks": ["lattice", "lattice"]})


def test_payload_senders_are_clients() -> None:
    config = parse_config({"data": {"clients": 9}, "recording": {"payload_senders": [8, 9]}})
    task = load_dataset(config, None).task(0)
    with pytest.raises(ConfigError, match=r"payload_senders = 9: clients are 0 to 8"):
        build_federation(config, task)


@pytest.mark.parametrize(("floor", "claimed"), [(0, True), (2, False), (5, False)])
def test_an_option_that_is_not_lossless_takes_the_claim_back(floor: int, claimed: bool) -> None:
    masked = QUICKSTART.with_stem("masking-ml100k")
    assert load_config(masked, {"protection.tail_floor": floor}).claims_lossless == claimed
