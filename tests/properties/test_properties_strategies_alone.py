"""What any strategy prints runs alone: with its imports, or with words for what has none."""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

from secure_fedrec.algorithms import PMFConfig
from secure_fedrec.properties.split.aggregation import Averaging, Summary
from secure_fedrec.properties.strategies import (
    Federation,
    codecs,
    cohorts,
    faults,
    federations,
    latent_vectors,
    pmf_configs,
    randomized_responses,
    rating_tables,
    ratings_of,
    stacks,
    streams,
    virtual_ratings,
)
from secure_fedrec.properties.strategies.code import imports_of
from secure_fedrec.properties.strategies.split import (
    SplitRun,
    averaging_rules,
    local_trainings,
    split_runs,
)
from secure_fedrec.protection import DirectSum, Stack
from secure_fedrec.streams import Streams
from tests.properties.test_properties_strategies_code import printed

SEED = Streams.from_seed(1)

STRATEGIES: dict[str, st.SearchStrategy[Any]] = {
    "streams": streams(),
    "rating_tables": rating_tables(),
    "cohorts": cohorts(3),
    "pmf_configs": pmf_configs(),
    "faults": faults(),
    "codecs": codecs(3),
    "virtual_ratings": virtual_ratings(n_items=3, streams=SEED),
    "randomized_responses": randomized_responses(n_items=3, streams=SEED),
    "federations": federations(width=2),
    "split_runs": split_runs(users=2),
    "local_trainings": local_trainings(),
    "averaging_rules": averaging_rules().filter(lambda rule: isinstance(rule, Averaging)),
}


def told(value: Any) -> str:
    """All of a value in words."""
    return str(value.tolist() if hasattr(value, "tolist") else value)


@pytest.mark.parametrize("name", STRATEGIES)
def test_what_is_printed_runs_alone(name: str) -> None:
    def check(value: Any) -> None:
        raise ValueError(told(value))

    code, words = printed(check, ValueError, value=STRATEGIES[name])
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        exec(code, {"check": check})  # noqa: S102
    imports = [line for line in code.splitlines() if line.startswith("from ")]
    assert len(imports) == len(set(imports)) > 0
    assert "#" not in code


def test_vectors_are_printed_with_all_their_digits_beside() -> None:
    def check(table: Any) -> None:
        raise ValueError(told(table))

    code, words = printed(check, ValueError, table=latent_vectors(2, 2))
    found = re.search(r"^# In full: (.*)$", code, flags=re.M)
    assert found is not None
    names: dict[str, Any] = {"check": lambda table: None}
    exec(code, names)  # noqa: S102
    assert told(eval(found[1], names)) == words  # noqa: S307


def test_a_fault_beside_a_federation_is_imported_too() -> None:
    def check(federation: Federation, fault: Any) -> None:
        raise ValueError(f"{federation!r} {fault!r}")

    code, words = printed(check, ValueError, federation=federations(width=2), fault=faults())
    with pytest.raises(ValueError, match=f"^{re.escape(words)}$"):
        exec(code, {"check": check})  # noqa: S102


def test_a_stack_that_is_drawn_inside_a_test_runs_alone() -> None:
    def check(table: Any, seed: Streams, data: st.DataObject) -> None:
        stack = data.draw(stacks(table, width=1, streams=seed))
        raise ValueError(repr(stack.describe()))

    code, words = printed(check, ValueError, table=rating_tables(), seed=streams(), data=st.data())
    code = re.sub(r"^check\(.*?^\)$", "", code, flags=re.M | re.S)  # what Hypothesis draws from
    names: dict[str, Any] = {}
    exec(code.replace("Draw 1: ", "drawn = "), names)  # noqa: S102
    assert isinstance(names["drawn"], Stack)
    assert repr(names["drawn"].describe()) == words


class Outer:
    class Inner(DirectSum):
        """A class in a class."""


class OfAScript(DirectSum):
    """As if the script that runs had it."""

    __module__ = "__main__"


def local() -> Any:
    def made(**sizes: Any) -> DirectSum:
        return DirectSum(**sizes)

    return made


def printed_for(collector: Any) -> tuple[str, str]:
    """What is printed of a federation with a collector."""

    def check(federation: Federation) -> None:
        raise ValueError(type(federation.stack.collector).__qualname__)

    return printed(check, ValueError, federation=federations(width=1, collectors=(collector,)))


@pytest.mark.parametrize(
    "collector",
    [Outer.Inner, partial(DirectSum), partial(Outer.Inner)],
    ids=["class", "partial", "partial of a class"],
)
def test_a_class_in_a_class_and_a_partial_are_imported(collector: Any) -> None:
    code, words = printed_for(collector)

    def again(federation: Federation) -> None:
        raise ValueError(type(federation.stack.collector).__qualname__)

    with pytest.raises(ValueError, match=f"^{words}$"):
        exec(code, {"check": again})  # noqa: S102
    assert "#" not in code


@pytest.mark.parametrize("collector", [DirectSum, Outer.Inner], ids=["class", "nested"])
def test_a_stack_names_a_class_as_it_is_imported(collector: Any) -> None:
    def check(stack: Stack) -> None:
        raise ValueError(type(stack.collector).__qualname__)

    table = ratings_of({0: {0: 5.0}, 1: {1: 1.0}}, items=6)
    drawn = stacks(table, width=2, streams=SEED, collector=collector)
    code, words = printed(check, ValueError, stack=drawn)
    with pytest.raises(ValueError, match=f"^{words}$"):
        exec(code, {"check": check})  # noqa: S102


def test_of_two_classes_of_one_name_neither_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    others = ModuleType("others")
    monkeypatch.setitem(sys.modules, "others", others)
    other = type("DirectSum", (DirectSum,), {"__module__": "others"})
    others.DirectSum = other  # type: ignore[attr-defined]
    lines = imports_of(partial(DirectSum), partial(other))
    assert "import DirectSum" not in lines
    assert "# Several are called DirectSum, in others and " in lines


def test_numbers_of_numpy_are_printed_as_those_of_python() -> None:
    drawn = pmf_configs(temperatures=st.just(np.float64(0.1)))

    def check(config: PMFConfig) -> None:
        raise ValueError(config.temperature)

    assert "np.float64" not in printed(check, ValueError, config=drawn)[0]


HERE = Path(__file__).name


@pytest.mark.parametrize(
    ("collector", "code", "comment"),
    [
        (local(), "made", rf"Define made here, or import it: local.<locals>.made \({HERE}, line"),
        (
            lambda **sizes: DirectSum(**sizes),  # noqa: PLW0108
            "...",
            rf"In place of ... put <lambda> \({HERE}, line",
        ),
        (OfAScript, "OfAScript", "Define OfAScript here, or import it: OfAScript "),
        (partial(local()), "partial(made)", "Define made here, or import it: local.<locals>.made "),
    ],
    ids=["local", "lambda", "script", "partial"],
)
def test_what_cannot_be_imported_is_said(
    monkeypatch: pytest.MonkeyPatch, collector: Any, code: str, comment: str
) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "OfAScript", OfAScript, raising=False)
    found, _ = printed_for(collector)
    assert f"\n        collector={code},\n" in found
    assert re.search(rf"^# {comment}", found, flags=re.M)
    assert "from __main__" not in found


def test_what_is_printed_by_a_script_says_what_to_define(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from secure_fedrec.properties.strategies import federations\n"
        "from secure_fedrec.protection import DirectSum\n"
        "from hypothesis import find, settings\n"
        "class Mine(DirectSum): pass\n"
        "drawn = federations(width=1, collectors=(Mine,))\n"
        "print(find(drawn, lambda _: True, settings=settings(database=None)).code)\n"
    )
    ended = subprocess.run(  # noqa: S603
        [sys.executable, str(script)], capture_output=True, text=True, check=True
    )
    assert "# Define Mine here, or import it: Mine (script.py, line 4).\n" in ended.stdout


def weighted(_summary: Summary) -> float:
    return 2.0


def test_rules_of_ones_own_are_said_where_they_cannot_be_imported() -> None:
    def check(run: SplitRun) -> None:
        raise ValueError(str(run.aggregate))

    for rule, words in (
        (Averaging(weight=weighted), f"from {__name__} import weighted\n"),
        (Averaging(weight=lambda _summary: 2.0), "\n# In place of ... put "),
    ):
        code, _ = printed(check, ValueError, run=split_runs(users=2, rules=st.just(rule)))
        assert words in code
