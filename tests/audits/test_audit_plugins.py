"""Plug-ins in configurations: loaded, told, judged as what is shipped is; misuse is refused."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest

from attacks.planted.controls import WHO, planted
from attacks.scoring.games import Finding, tried
from attacks.scoring.measures import MEASURES, listed_keys
from attacks.suite import SUITE
from attacks.view.knowledge import item_view
from audits import plugin_origins, plugins
from audits.config.audit import load_config, parse_config
from audits.explain.schema import config_schema
from audits.gates.waivers import BESIDE_ATTACKS
from audits.plugin_names import WORDS
from audits.plugin_origins import GROUPS
from audits.report.findings import finding_json
from audits.report.schema import finding_fields
from audits.systems import DATA, SYSTEMS
from secure_fedrec.errors import CheckpointError, ConfigError
from secure_fedrec.protection import RECORDS, STACKS
from secure_fedrec.wire import View

ROOT = Path(plugins.__file__).parents[1]
REGISTRIES = (SUITE, MEASURES, RECORDS, SYSTEMS, DATA)

Command = Callable[..., tuple[int, str, str]]
Refusal = Callable[..., str]
Write = Callable[[dict[str, Any]], Path]
Module = Callable[..., str]

ATTACK = (ROOT / "examples" / "own_attack" / "own_attack.py").read_text(encoding="utf-8")
LAYER = (ROOT / "examples" / "own_layer" / "own_layer.py").read_text(encoding="utf-8")
SYSTEM = """
from audits.system import Statement
from audits.systems.pmf import rating_system
from secure_fedrec.algorithms import PMF, PMFConfig

class Mine(PMF):
    def public_knowledge(self):
        return {**super().public_knowledge(), "name": "mine"}

SYSTEM = rating_system("mine", Mine, PMFConfig, statement=lambda _: Statement(
    name="mine", stays="ratings", leaves="rows"))
"""
DATA_KIND = """
from typing import ClassVar
from audits.rating_data import Parts, Source
from audits.system import DataKind
from secure_fedrec.algorithms import PMFConfig
from secure_fedrec.data import SyntheticConfig, generate

class Made(Parts):
    implicit: ClassVar[bool] = False
    name: str = "made"
    def read(self, *, seed, data_dir):
        return Source(generate(SyntheticConfig(clients=40, items=60, mean_ratings=12.0, seed=seed)))

DATA = DataKind(Made, PMFConfig, metrics=("mae", "rmse"))
"""
RAISES = ATTACK.replace(
    "        rounds = upload_rounds(view)\n",
    "        rounds = upload_rounds(view)\n        raise KeyError('what is this?')\n",
).replace("two-rounds", "raising")


@pytest.fixture(autouse=True)
def nothing_stays() -> Iterator[None]:
    """What a test adds is gone after it."""
    yield
    for registry in REGISTRIES:
        for name in list(registry.added):
            registry.remove(name)
    plugins._LOADED.clear()


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Module]:
    """Writes a module that can be imported; its name."""
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    written: list[str] = []

    def write(code: str, name: str = "") -> str:
        name = name or f"own_{len(written)}_{abs(hash((code, str(tmp_path)))) % 10**8}"
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
        written.append(name)
        return name

    yield write
    for name in written:
        sys.modules.pop(name, None)


def report_of(command: Command, config: Path, out: Path) -> dict[str, Any]:
    code, _, err = command("audit", config, "--out", out, "--quiet")
    assert code in (0, 1, 3), err
    report: dict[str, Any] = json.loads((out / "report.json").read_text(encoding="utf-8"))
    return report


def test_an_audit_with_plug_ins_of_four_kinds(
    small: dict[str, Any], write_config: Write, module: Module, command: Command, tmp_path: Path
) -> None:
    attack, layer, system, data = map(module, (ATTACK, LAYER, SYSTEM, DATA_KIND))
    raw = small | {
        "attacks": ["direct", f"{attack}:ATTACK"],
        "algorithm": {"name": f"{system}:SYSTEM", "rank": 4, "rounds": 4},
        "data": {"name": f"{data}:DATA"},
        "protection": [{"layer": f"{layer}:LAYER", "step": 0.5}],
        "adversaries": small["adversaries"][:1],
        "gates": [
            {"metric": "auc", "attack": f"{attack}:ATTACK", "adversary": "server", "max": 0.6}
        ],
    }
    jsonschema.Draft7Validator(config_schema()).validate(raw)
    report = report_of(command, write_config(raw), tmp_path / "out")
    assert [each["attack"] for each in report["findings"]] == ["direct", "two-rounds"]
    assert report["gates"][0]["attack"] == "two-rounds"
    assert report["gates"][0]["outcome"] == "fail"
    assert report["protection"]["layers"] == ["rounded-values"]
    assert report["data"]["clients"] == 40
    assert "intersection" in report["switched_off"]
    told = {each["kind"]: each for each in report["manifest"]["plugins"]}
    assert {kind: each["name"] for kind, each in told.items()} == {
        "attack": "two-rounds",
        "algorithm": "mine",
        "data set": "made",
        "layer": "rounded-values",
    }
    assert all(len(each["sha256"]) == 64 for each in told.values())
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert f"{attack}:ATTACK" in page
    kept = json.loads((tmp_path / "out" / "config.json").read_text(encoding="utf-8"))
    assert kept["attacks"] == ["direct", f"{attack}:ATTACK"]
    assert kept["algorithm"]["name"] == f"{system}:SYSTEM"
    jsonschema.Draft7Validator(config_schema()).validate(kept)

    # A recorded run is attacked with all that its configuration names, and more.
    other = module(ATTACK.replace("two-rounds", "twice"))
    transcript = tmp_path / "out" / "transcript"
    code, out, _ = command("attack", transcript, "--quiet", "--json")
    assert code == 0
    assert [each["attack"] for each in json.loads(out)] == ["direct", "two-rounds"]
    words = ("--attack", f"{other}:ATTACK", "--quiet", "--json")
    assert json.loads(command("attack", transcript, *words)[1])[0]["attack"] == "twice"


def test_all_attacks_are_those_that_are_shipped_and_the_own(
    small: dict[str, Any], module: Module
) -> None:
    name = module(ATTACK)
    config = parse_config(small | {"attacks": ["all", f"{name}:ATTACK"]})
    assert config.attacks == (*SUITE.shipped, "two-rounds")
    assert parse_config(config.as_json()).attacks == config.attacks
    assert parse_config(small).attacks == tuple(SUITE.shipped)
    assert parse_config(small | {"attacks": ["all"]}).attacks == tuple(SUITE.shipped)


def test_claims_call_an_algorithm_on_ratings_by_its_own_name(module: Module) -> None:
    (plugin,) = plugins.load("algorithm", f"{module(SYSTEM)}:SYSTEM", key="algorithm.name")
    claims = SYSTEMS[plugin.name].claims
    assert set(claims) == set(STACKS)
    assert claims[()].system == "mine"
    assert claims["masking",].system.startswith("mine under secure aggregation")
    told = claims["virtual-ratings", "denoisers"].system
    assert told.startswith("mine with the protection of FedRec++")
    assert not any("PMF" in claim.system for claim in claims.values())


def test_a_system_brings_its_attacks(small: dict[str, Any], module: Module) -> None:
    """They count among "all", and are switched off where they are left out."""
    attack = module(ATTACK)
    of_system = "SYSTEM = replace(SYSTEM, attacks=(*SYSTEM.attacks, {!r}))\n"
    code = f"from dataclasses import replace\n{SYSTEM}" + of_system.format(f"{attack}:ATTACK")
    raw = small | {"algorithm": {"name": f"{module(code)}:SYSTEM", "rounds": 4}}
    assert parse_config(raw).attacks[-1] == "two-rounds"
    config = parse_config(raw | {"attacks": ["direct"], "gates": []})
    assert config.audited.attacks[-1] == config.known_attacks[-1] == "two-rounds"


@pytest.mark.parametrize("where", ["claims", "scoring"])
def test_an_attack_that_raises_costs_its_own_finding(
    where: str,
    small: dict[str, Any],
    write_config: Write,
    module: Module,
    command: Command,
    tmp_path: Path,
) -> None:
    code = RAISES
    if where == "scoring":
        broken = (
            "class Broken:\n    def scored(self, case):\n        raise KeyError('what is this?')\n"
        )
        code = RAISES.replace("        raise KeyError('what is this?')\n", "")
        code = code.replace("class TwoRounds", f"{broken}\n\nclass TwoRounds")
        code = code.replace("made=(claim,)", "made=(Broken(),)")
    name = module(code)
    raw = small | {"attacks": ["direct", f"{name}:ATTACK"], "run": {"workers": 2}}
    raw["gates"] = [{"metric": "rmse", "max": 5.0}]
    report = report_of(command, write_config(raw), tmp_path / "out")
    found = {(each["attack"], each["adversary"]): each for each in report["findings"]}
    finding = found["raising", "server"]
    line = 1 + code.splitlines().index(
        next(each for each in code.splitlines() if "raise KeyError" in each)
    )
    assert finding["raised"] == {
        "type": "KeyError",
        "message": "'what is this?'",
        "where": f"{name}.py:{line}",
    }
    assert found["direct", "server"]["status"] == "measured"
    assert report["verdict"]["outcome"] == "inconclusive"
    assert any(f"raised KeyError: 'what is this?' ({name}.py:" in each
               for each in report["verdict"]["reasons"])  # fmt: skip
    assert any(each["kind"] == "raised" for each in report["not_tried"])


def test_a_shipped_attack_that_raises_costs_its_own_finding(
    small: dict[str, Any], write_config: Write, command: Command, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    def broken(*_: object) -> Any:
        raise MemoryError

    monkeypatch.setattr(type(SUITE["direct"]), "claim", broken)
    raw = small | {"attacks": ["direct", "intersection"], "gates": [{"metric": "rmse", "max": 5.0}]}
    report = report_of(command, write_config(raw), tmp_path / "out")
    assert report["findings"][0]["raised"]["type"] == "MemoryError"
    reasons = report["verdict"]["reasons"]
    assert any(each.startswith("server/direct: the attack raised MemoryError") for each in reasons)
    assert report["findings"][1]["status"] == "measured"
    assert report["verdict"]["outcome"] == "inconclusive"


SCORED = """
from attacks.scoring.truth import Scored

class Told:
    def scored(self, case):
        yield Scored(figures={figures}, units={units}, details={details})
"""


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"figures": "{'auc': float('nan')}"}, "the figure auc is nan, not a finite number"),
        ({"figures": "{'auc': float('inf')}"}, "the figure auc is inf, not a finite number"),
        ({"figures": "{'auc': 'high'}"}, "the figure auc is 'high', not a finite number"),
        ({"figures": "{'auc': True}"}, "the figure auc is True, not a finite number"),
        ({"figures": "{'own': __import__('numpy').ones(1)}"}, "the figure own is array([1.])"),
        ({"units": "{'clients': 'x'}"}, "its number of clients is 'x', not a whole number"),
        ({"details": "{'by': float('nan')}"}, "what it found is not JSON"),
        ({"details": "{'by': {1, 2}}"}, "what it found is not JSON"),
    ],
    ids=["nan", "inf", "text", "bool", "array", "units", "details nan", "details set"],
)
def test_what_no_report_can_hold_costs_its_own_finding(
    told: dict[str, str], says: str, small: dict[str, Any], write_config: Write, module: Module,
    command: Command, tmp_path: Path,
) -> None:  # fmt: skip
    plain = {"figures": "{'auc': 0.5}", "units": "{'clients': 40}", "details": "{}"}
    code = SCORED
    for part, value in {**plain, **told}.items():
        code = code.replace(f"{{{part}}}", value)
    code = ATTACK.replace("class TwoRounds", f"{code}\n\nclass TwoRounds")
    name = module(code.replace("made=(claim,)", "made=(Told(),)"))
    raw = small | {"attacks": [f"{name}:ATTACK", "direct"], "run": {"workers": 1}}
    raw |= {"adversaries": small["adversaries"][:1], "gates": [{"metric": "rmse", "max": 5.0}]}
    report = report_of(command, write_config(raw), tmp_path / "out")
    own, direct = report["findings"]
    assert says in own["raised"]["message"]
    assert direct["status"] == "measured"
    assert report["verdict"]["outcome"] == "inconclusive"


@pytest.mark.parametrize(
    "raised",
    ["__import__('asyncio').CancelledError()", "GeneratorExit()", "BaseException('hm')"],
)
def test_whatever_an_attack_raises_costs_its_own_finding_alone(
    raised: str, small: dict[str, Any], write_config: Write, module: Module, command: Command,
    tmp_path: Path,
) -> None:  # fmt: skip
    name = module(RAISES.replace("KeyError('what is this?')", raised))
    raw = small | {"attacks": ["direct", f"{name}:ATTACK"], "run": {"workers": 1}}
    raw |= {"adversaries": small["adversaries"][:1], "gates": [{"metric": "rmse", "max": 5.0}]}
    report = report_of(command, write_config(raw), tmp_path / "out")
    direct, own = report["findings"]
    assert direct["status"] == "measured"
    assert own["raised"]["type"] in raised
    assert own["raised"]["where"].startswith(f"{name}.py:")
    assert report["verdict"]["outcome"] == "inconclusive"


def test_an_interrupt_of_an_attack_is_an_interrupt(
    small: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(type(SUITE["direct"]), "claim", interrupted)
    run = planted("ratings")[0]
    with pytest.raises(KeyboardInterrupt):
        tried(SUITE["direct"], WHO["server"], run.transcript, planted("ratings")[1], seed=0)


@pytest.mark.parametrize("where", ["import", "contract", "attribute"])
def test_whatever_is_raised_before_an_audit_is_laid_to_the_plug_in(
    where: str, small: dict[str, Any], write_config: Write, module: Module, refusal: Refusal,
    tmp_path: Path,
) -> None:  # fmt: skip
    panic = "class Panic(BaseException):\n    pass\n\n"
    own = {
        "import": "raise Panic('hm')\n",
        "contract": "class Own:\n    @property\n    def name(self):\n        raise Panic('hm')\n\n"
        "ATTACK = Own()\n",
        "attribute": "def __getattr__(name):\n    raise Panic('hm')\n",
    }[where]
    name = module(panic + own)
    config = write_config(small | {"attacks": [f"{name}:ATTACK"]})
    said = refusal("audit", config, "--out", tmp_path / "out", "--quiet")
    assert said.startswith(f"attacks = '{name}:ATTACK'"), said
    assert f"raises Panic: hm ({name}.py:" in said


def test_an_attack_changes_what_is_public_for_itself_alone() -> None:
    """Its finding says what reached the adversary as if it had changed nothing."""
    run, truth = planted("ratings")

    class Changes(type(SUITE["direct"])):  # type: ignore[misc]
        __doc__ = type(SUITE["direct"]).__doc__

        reads_item_rows = False

        def claim(self, view: View) -> Any:
            claims = super().claim(item_view(view))
            view.public["protection"]["traits"].update(uploads="hidden", noise="gauss")
            return claims

    before = deepcopy(dict(run.transcript.public))
    plain = tried(SUITE["direct"], WHO["server"], run.transcript, truth, seed=0)
    found = tried(Changes(), WHO["server"], run.transcript, truth, seed=0)
    assert (found.received, found.held, found.read) == (plain.received, plain.held, plain.read)
    assert run.transcript.public == before


def test_the_digest_follows_the_source(small: dict[str, Any], module: Module) -> None:
    raw = small | {"gates": []} | {"algorithm": {"name": f"{module(SYSTEM)}:SYSTEM", "rounds": 4}}
    raw["attacks"] = ["direct", f"{module(ATTACK)}:ATTACK"]
    first = parse_config(raw)
    assert parse_config(raw).digest() == first.digest()
    name = raw["algorithm"]["name"].partition(":")[0]
    source = Path(sys.modules[name].__file__ or "")
    source.write_text(SYSTEM + "# changed\n", encoding="utf-8")
    del sys.modules[name]
    second = parse_config(raw)
    assert first.digest() != second.digest()
    assert first.training_digest() != second.training_digest()
    without = parse_config(raw | {"attacks": ["direct"]})
    assert without.digest() != second.digest()
    assert without.training_digest() == second.training_digest()


def test_a_run_is_not_resumed_with_another_plug_in(
    small: dict[str, Any], write_config: Write, module: Module, refusal: Refusal, command: Command,
    tmp_path: Path,
) -> None:  # fmt: skip
    name = module(SYSTEM)
    raw = small | {"algorithm": {"name": f"{name}:SYSTEM", "rank": 4, "rounds": 4}}
    raw |= {"attacks": ["direct"], "protection": []}
    raw |= {"adversaries": small["adversaries"][:1], "gates": [{"metric": "rmse", "max": 5.0}]}
    config, out = write_config(raw), tmp_path / "out"
    report_of(command, config, out)
    assert command("audit", config, "--out", out, "--resume", "--quiet")[0] == 3
    Path(sys.modules[name].__file__ or "").write_text(f"{SYSTEM}# changed\n", encoding="utf-8")
    del sys.modules[name]
    said = refusal("audit", config, "--out", out, "--resume", "--quiet")
    assert f"{name}:SYSTEM is not the one that it was begun with" in said


def test_a_layer_is_in_all_that_follows_from_layers(
    small: dict[str, Any], module: Module, command: Command
) -> None:
    name, before = module(LAYER), len(STACKS)
    config = parse_config(small | {"protection": [{"layer": f"{name}:LAYER"}]})
    assert config.protection["rounded-values"].step == 0.25
    assert len(STACKS) > before
    assert ("rounded-values", "denoisers") in STACKS
    code, out, _ = command("explain", f"{name}:LAYER")
    assert code == 0
    assert "what is smaller than a step" in out


@pytest.mark.parametrize(
    ("code", "shown"),
    [(ATTACK, "Compares|what an|Intersection"), (SYSTEM, "rank: "), (DATA_KIND, "utility_folds")],
    ids=["attack", "system", "data"],
)
def test_explain_tells_what_a_plug_in_is(
    code: str, shown: str, module: Module, command: Command
) -> None:
    name, ended = module(code), {ATTACK: "ATTACK", SYSTEM: "SYSTEM", DATA_KIND: "DATA"}[code]
    exit_code, out, err = command("explain", f"{name}:{ended}")
    assert exit_code == 0, err
    assert any(each in out for each in shown.split("|"))


SHADOWS = ATTACK.replace("two-rounds", "direct")
INCOMPLETE = ATTACK.replace(
    "Limits: Virtual items that are drawn once and for all are in both uploads.", "Limits:"
)
UNCONTROLLED = ATTACK.replace('measure="auc"', 'measure="aucc"')
UNTRAITED = SYSTEM.replace('"name": "mine"', '"name": "mine", "traits": {"rows": "sand"}')
UNCLAIMED = LAYER.replace('hides="what is smaller than a step, from the server"', 'hides=""')
REFUSED: dict[str, tuple[str, str, str, str]] = {
    # case: module, object, key, what is said
    "shadows an attack": (
        SHADOWS,
        "ATTACK",
        "attacks",
        "is called 'direct', and so is the shipped attack",
    ),
    "no such object": (ATTACK, "ATACK", "attacks", "has no ATACK (choices: "),
    "a class": (ATTACK, "TwoRounds", "attacks", "is a class, but must be an object"),
    "another kind": (LAYER, "LAYER", "attacks", "the attack has no card"),
    "a module of nothing": ("X = 3\n", "X", "attacks", "the attack has no name"),
    "card": (INCOMPLETE, "ATTACK", "attacks", "the attack does not state its limits"),
    "control": (UNCONTROLLED, "ATTACK", "attacks", "is controlled by an unknown figure"),
    "raises": ("x = 1\nraise OSError('no')\n", "X", "attacks", "raises OSError: no (own_"),
    "exits": ("raise SystemExit(0)\n", "X", "attacks", "raises SystemExit: 0"),
    "syntax": ("def (:\n", "X", "attacks", "raises SyntaxError"),
    "torch": (
        "raise ModuleNotFoundError('no torch', name='torch')\n",
        "X",
        "attacks",
        "needs torch, which is not installed; pip install 'secure-fedrec[torch]' installs it",
    ),
    "an import": ("import not_there.at_all\n", "X", "attacks", "needs not_there, which is not"),
    "no layer": (ATTACK, "ATTACK", "protection.layer", "the layer is not a Layer"),
    "layer without a claim": (UNCLAIMED, "LAYER", "protection.layer", "says nothing of what it"),
    "layer without a trait": (
        LAYER.replace("traits=AS_BEFORE,\n    claim", "traits=None,\n    claim"),
        "LAYER",
        "protection.layer",
        "traits: must be stated",
    ),
    "shadows a layer": (
        LAYER.replace('name="rounded-values"', 'name="masking"'),
        "LAYER",
        "protection.layer",
        "is called 'masking', and so is the shipped layer",
    ),
    "no system": (LAYER, "LAYER", "algorithm.name", "the algorithm is not a System"),
    "shadows a system": (
        SYSTEM.replace('rating_system("mine"', 'rating_system("pmf"'),
        "SYSTEM",
        "algorithm.name",
        "is called 'pmf', and so is the shipped algorithm",
    ),
    "system without traits": (UNTRAITED, "SYSTEM", "algorithm.name", "states no such traits"),
    "system without a setting": (
        (ROOT / "examples" / "own_algorithm" / "own_algorithm.py")
        .read_text(encoding="utf-8")
        .replace("    rank: Count = 16\n", ""),
        "SYSTEM",
        "algorithm.name",
        "BPRConfig.rank: is missing: settings of a method have rank",
    ),
    "no data": (SYSTEM, "SYSTEM", "data.name", "the data set is not a DataKind"),
    "a floor of nothing": (
        ATTACK.replace("floor=0.9", "floor=float('nan')"),
        "ATTACK",
        "attacks",
        "is controlled with the floor nan, not a number above 0",
    ),
    "a floor that silence reaches": (
        ATTACK.replace("floor=0.9", "floor=0.0"),
        "ATTACK",
        "attacks",
        "is controlled with the floor 0.0, not a number above 0",
    ),
    "figures of nothing": (ATTACK, "ATTACK", "measures", "are not a mapping of Measures by key"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_plug_in_that_is_none_is_refused(
    case: str, small: dict[str, Any], write_config: Write, module: Module, refusal: Refusal,
    tmp_path: Path,
) -> None:  # fmt: skip
    code, name, key, says = REFUSED[case]
    written = f"{module(code)}:{name}"
    raw: dict[str, Any] = dict(small)
    if key in ("attacks", "measures"):
        raw[key] = [written]
    elif key == "protection.layer":
        raw["protection"] = [{"layer": written}]
    else:
        table = key.partition(".")[0]
        raw[table] = {"name": written}
    said = refusal("audit", write_config(raw), "--out", tmp_path / "out", "--quiet")
    assert said.startswith(key), said
    assert says in said, said
    assert not (tmp_path / "out").exists()


def test_what_a_plug_in_raises_is_laid_to_it(
    small: dict[str, Any], write_config: Write, module: Module, command: Command, tmp_path: Path
) -> None:
    """With a line of its own; what no line of it is in remains an error of this package."""
    name = module(DATA_KIND.replace("clients=40", "clients=40 // (seed - seed)"))
    raw = small | {"data": {"name": f"{name}:DATA"}}
    code, _, err = command("audit", write_config(raw), "--out", tmp_path / "out", "--quiet")
    last = err.splitlines()[-1]
    assert code == 2
    assert last.startswith(f"secure-fedrec: the data set {name}:DATA raises ZeroDivisionError: ")
    assert f"({name}.py:12)" in last
    assert plugins.blamed(KeyError("elsewhere")) is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nowhere.at.all:THING", "there is no module nowhere: install the distribution"),
        ("attacks.suite.more:THING", "there is no module attacks.suite.more"),
        ("a b:C", "a plug-in is written package.module:OBJECT"),
        ("pkg:", "a plug-in is written package.module:OBJECT"),
        ("os.path:join()", "a plug-in is written package.module:OBJECT"),
        ("os.path:join", "the attack has no name"),
    ],
)
def test_a_name_that_leads_nowhere_is_refused(
    name: str, says: str, small: dict[str, Any], write_config: Write
) -> None:
    path = write_config(small | {"attacks": ["direct", name]})
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    assert refused.value.key == "attacks"
    assert says in str(refused.value)
    assert "config.toml" in str(refused.value)


def test_two_plug_ins_of_one_name_are_refused(small: dict[str, Any], module: Module) -> None:
    one, two = module(ATTACK), module(ATTACK + "# another\n")
    with pytest.raises(ConfigError, match=f"is called 'two-rounds', and so is {one}:ATTACK"):
        parse_config(small | {"attacks": [f"{one}:ATTACK", f"{two}:ATTACK"]})
    with pytest.raises(ConfigError, match="is named twice"):
        parse_config(small | {"attacks": [f"{one}:ATTACK", f"{one}:ATTACK"]})


@pytest.mark.parametrize("word", sorted(WORDS))
@pytest.mark.parametrize("kind", GROUPS)
def test_a_word_of_configurations_means_itself(
    word: str, kind: str, small: dict[str, Any], module: Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever has an entry point of that name; nothing of it is imported."""
    name = module("raise RuntimeError('imported')\n")
    point = SimpleNamespace(name=word, value=f"{name}:THING", group=GROUPS[kind], dist=None)
    for place in (plugin_origins, plugins):
        monkeypatch.setattr(place, "installed", lambda of: (point,) if of == kind else ())
    assert plugins.load(kind, word, key="attacks") == ()
    assert plugins.explained(word) == ()
    assert parse_config(small | {"attacks": ["all"]}).attacks == tuple(SUITE.shipped)
    assert name not in sys.modules


FIGURES = """
import tomllib
from attacks.scoring.measures import catalogue

FIGURES = catalogue(tomllib.loads('''
[own]
secret = "hair colour"
[own.hair]
about = "Share of clients whose hair colour is named."
scale.unit = "share"
scale.chance = "the commonest colour"
scale.abstention = "a miss"
severity.rule = "observed"
severity.medium = 0.5
severity.floor = 0.9
'''))
"""


def own_figure(key: str) -> str:
    return FIGURES.replace("[own.hair]", f"[own.{key}]")


@pytest.mark.parametrize("word", sorted(WORDS))
def test_no_plug_in_is_called_as_a_word_of_configurations(word: str, module: Module) -> None:
    """Of whatever kind: the words are those of the parser and of waivers."""
    assert {"all", *BESIDE_ATTACKS} <= WORDS
    made = {
        "attack": (ATTACK.replace('"two-rounds"', repr(word)), "ATTACK"),
        "layer": (LAYER.replace('"rounded-values"', repr(word)), "LAYER"),
        "algorithm": (SYSTEM.replace('rating_system("mine"', f'rating_system("{word}"'), "SYSTEM"),
        "data set": (DATA_KIND.replace('"made"', repr(word)), "DATA"),
        "figures": (own_figure(word), "FIGURES"),
    }
    assert made.keys() == GROUPS.keys()
    for kind, (code, thing) in made.items():
        with pytest.raises(ConfigError, match="has another meaning"):
            plugins.load(kind, f"{module(code)}:{thing}", key="name")
        assert not any(registry.added for registry in REGISTRIES)


@pytest.mark.parametrize(
    "key",
    [
        *("attack", "details", "severity", "units", "value", "claimed", "raised", "held", "roc"),
        *("epsilon", "lossless", "utility_gain", "rmse"),
        *("auc_low", "auc_high", "precision_gain_low", "precision_gain_certain", "prior_auc"),
    ],
)
def test_a_figure_is_not_called_as_what_a_report_has(key: str, module: Module) -> None:
    """Fields of a finding, figures of gates, intervals and comparisons of what is shipped."""
    with pytest.raises(ConfigError, match=f"has a figure with the key '{key}', which "):
        plugins.load("figures", f"{module(own_figure(key))}:FIGURES", key="measures")
    assert not MEASURES.added


def test_every_field_of_a_finding_is_kept_from_figures() -> None:
    """Those that findings are made of, as reports have them."""
    blank = Finding(attack="direct", adversary="server", game="game")
    assert finding_json(blank, None).keys() - set(listed_keys()) <= finding_fields()
    assert finding_fields() & MEASURES.keys() <= {"auc"}


def test_two_own_figures_share_no_key(module: Module) -> None:
    plugins.load("figures", f"{module(FIGURES)}:FIGURES", key="measures")
    with pytest.raises(ConfigError, match="key 'hair_low', which is one of 'hair'"):
        plugins.load("figures", f"{module(own_figure('hair_low'))}:FIGURES", key="measures")
    assert list(MEASURES.added) == ["hair"]


def test_a_data_set_of_another_algorithm_is_refused(small: dict[str, Any], module: Module) -> None:
    raw = small | {"data": {"name": f"{module(DATA_KIND)}:DATA"}, "algorithm": {"name": "fedmf"}}
    with pytest.raises(ConfigError, match="is not a data set that fedmf learns from"):
        parse_config(raw | {"protection": [], "gates": []})


def test_nothing_is_imported_that_is_not_named(small: dict[str, Any], module: Module) -> None:
    """A list of plug-ins imports none of them, and no configuration those of another."""
    name = module("raise RuntimeError('imported')\n")
    config = small | {"attacks": ["direct", f"{name}:ATTACK"]}
    path = Path(sys.path[0]) / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    ended = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "audits.cli", "plugins", str(path), "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{sys.path[0]}:{ROOT}", "PATH": ""},
    )
    assert ended.returncode == 0, ended.stderr
    (told,) = (each for each in json.loads(ended.stdout) if each["configured"])
    assert told["object"] == f"{name}:ATTACK"
    assert told["file"] == str(Path(sys.path[0]) / f"{name}.py")
    assert name not in sys.modules
    parse_config(small)
    assert name not in sys.modules


def test_a_changed_plug_in_of_a_training_is_told(small: dict[str, Any], module: Module) -> None:
    config = parse_config(small | {"algorithm": {"name": f"{module(SYSTEM)}:SYSTEM"}})
    kept = config.as_json()
    assert plugins.same_training(kept, config.plugins) is None
    kept["plugins"][0]["sha256"] = "0" * 64
    assert "is not the one" in str(plugins.same_training(kept, config.plugins))


def test_errors_of_checkpoints_can_be_mended() -> None:
    """A run with another plug-in ends with exit code 2."""
    from audits.command_line import _MENDABLE

    assert CheckpointError in _MENDABLE
