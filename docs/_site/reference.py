"""The reference in Markdown, from the records and settings of the code."""

import ast
import contextlib
import dataclasses
import inspect
import io
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any
from unittest import mock

import attacks
import audits
import secure_fedrec
from attacks import SUITE
from attacks.suite import FAMILIES
from audits import command_line
from audits.config.audit import LAYER_TABLES, load_config
from audits.config.judged import ENTRIES
from audits.exit_codes import EXIT_CODES
from audits.explain.cards import TABLES, layer_card
from audits.explain.figures import figure_cards
from audits.explain.keys import Key, keys, trained
from audits.gates.gate import METRICS
from audits.presets import PRESETS
from audits.report import WRITERS
from secure_fedrec.data.catalogue import DATASETS, EXAMPLE_SETS, DatasetInfo
from secure_fedrec.recording import parquet_form, truth_file, validation
from tests.claims import claims
from tests.public_api import STABLE

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONFIGS = Path(command_line.__file__).parent / "configs"


def cell(text: object) -> str:
    """Text of a cell of a table, and of a definition, in Markdown."""
    return str(text).replace("``", "`").replace("|", "\\|")


def plain(text: str) -> str:
    """Text that Markdown would take marks from, as it is; code in its marks stays code."""
    parts = re.split(r"(``?[^`]+``?)", text)
    return "".join(
        f"`{part.strip('`')}`" if number % 2 else re.sub(r"([*_<>\[\]$|])", r"\\\1", part)
        for number, part in enumerate(parts)
    )


def facts(told: Mapping[str, str], code: tuple[str, ...] = ()) -> Iterator[str]:
    """Facts by name as a list, those of some names as code."""
    for name, text in told.items():
        yield f"- **{name}**: {f'`{text}`' if name in code else plain(text)}"


def section(level: int, title: str, anchor: str, *lines: str) -> Iterator[str]:
    """A heading with a target of its own, and what stands below it."""
    yield from ("", f"({anchor})=", f"{'#' * level} {title}", "")
    yield from lines


# --- configuration -----------------------------------------------------------------------------


def configuration() -> str:
    """Every key: what ``secure-fedrec explain KEY`` prints."""
    tables: dict[str, dict[str, list[Key]]] = {}
    for key in keys():
        tables.setdefault(key.path.partition(".")[0] if "." in key.path else "", {}).setdefault(
            key.path, []
        ).append(key)
    return "\n".join(
        line for table, paths in tables.items() for line in _table_of_keys(table, paths)
    )


def _table_of_keys(table: str, paths: Mapping[str, list[Key]]) -> Iterator[str]:
    written = "[[{}]]" if table in (*LAYER_TABLES, *ENTRIES) else "[{}]"
    title = f"`{written.format(table)}`" if table else "Top of the file"
    yield from section(2, title, f"table-{table or 'top'}")
    for path, meanings in paths.items():
        yield from section(3, f"`{path}`", f"key-{path}")
        for number, key in enumerate(meanings):
            if number:
                yield ""
                yield "---"
                yield ""
            told = key.words()
            yield plain(told.pop("meaning"))
            yield ""
            yield from facts(told, code=("default",))


# --- what is measured, and by whom ---------------------------------------------------------------


def figures() -> str:
    """Every figure that a gate may bound: what ``secure-fedrec explain FIGURE`` prints."""
    lines: list[str] = []
    for key in METRICS:
        lines += section(2, f"`{key}`", f"figure-{key}")
        for number, card in enumerate(figure_cards(key)):
            lines += ["", "---", ""] if number else []
            lines += facts(card)
    return "\n".join(lines)


def attack_cards() -> str:
    """Every attack: what ``secure-fedrec explain ATTACK`` prints."""
    lines: list[str] = []
    told_of: set[str] = set()
    for family, names in FAMILIES.items():
        title = f"On {_FAMILIES.get(family, family)}"
        lines += section(2, title, f"attacks-{family.replace(' ', '-')}")
        again = [f"[`{name}`](#attack-{name})" for name in names if name in told_of]
        lines += ["", f"And {', '.join(again)}."] if again else []
        for name in (each for each in names if each not in told_of):
            told_of.add(name)
            attack = SUITE[name]
            told = dataclasses.asdict(attack.card)
            control = attack.control
            told["control"] = f"{control.measure} on the planted federation {control.on}"
            lines += section(3, f"`{name}`", f"attack-{name}", *facts(told))
    return "\n".join(lines)


_FAMILIES = {
    "ratings": "uploads of ratings",
    "split": "uploads of split models",
    "hierarchical": "uploads of organisations",
    "item tables": "changes of item tables",
}


def layers() -> str:
    """Every layer: what ``secure-fedrec explain LAYER`` prints."""
    titles = {"protection": "Over what is summed", "bag_protection": "Over what lies in bags"}
    lines: list[str] = []
    for table, records in TABLES.items():
        lines += section(2, titles[table], f"layers-{table}")
        for name, layer in records.items():
            told = layer_card(table, layer)
            own = sorted(
                {
                    key.path
                    for key in keys()
                    if key.path.startswith(f"{table}.") and name in key.places
                }
            )
            anchor = f"layer-{table}-{name}"
            links = ", ".join(f"[`{path}`](#key-{path})" for path in own)
            settings = [f"- **keys**: {links}"] if own else []
            lines += section(3, f"`{name}`", anchor, *facts(told), *settings)
    return "\n".join(lines)


# --- what is shipped -----------------------------------------------------------------------------


def presets() -> str:
    """Every shipped configuration: its head comment, its outcome, and what it says of itself."""
    lines: list[str] = []
    cells = re.findall(r"^\| `([\w-]+)` \| (.*) \|$", README, re.MULTILINE)
    stated = {name: told.split(" | ") for name, told in cells}
    for name in PRESETS:
        path = CONFIGS / f"{name}.toml"
        config = load_config(path)
        lead = path.read_text(encoding="utf-8").partition("\n\n")[0].splitlines()
        head = _prose([line.removeprefix("#")[1:] for line in lead if line.startswith("#")])
        gates = ", ".join(f"`{gate.name}`" for gate in config.gates)
        stack = " + ".join((*config.protection, *config.bag_protection)) or "none"
        told = {
            "title": config.title,
            "trains": f"{config.system} on {config.data.name}, {config.algorithm.rounds} rounds",
            "layers": stack,
            "adversaries": ", ".join(each.name for each in config.adversaries),
        }
        lines += section(2, f"`{name}`", f"preset-{name}", *head, "")
        lines += facts(told)
        _, outcome, secrets, left_out = stated[name]
        lines.append(f"- **outcome**: {outcome.replace('](docs/', '](../')}")
        lines += [f"- **documented secrets**: {secrets}", f"- **not tried**: {left_out}"]
        lines += [f"- **gates**: {gates}"] if gates else []
    return "\n".join(lines)


def _prose(lines: list[str]) -> Iterator[str]:
    """Text with indented examples in it: paragraphs, and blocks for what is indented."""
    for indented, part in itertools.groupby(lines, key=lambda line: line.startswith("    ")):
        text = list(part)
        yield from ("", "```text", *text, "```", "") if indented else (plain(" ".join(text)),)


def data_sets() -> str:
    """Every data set that has facts."""
    lines: list[str] = []
    known = {**DATASETS, **EXAMPLE_SETS}
    learners: dict[str, list[str]] = {name: [] for name in known}
    for pair in trained():
        for name in pair.sets:
            learners.setdefault(name, []).append(pair.system.name)
    for name, systems in learners.items():
        told = {"learnt from by": ", ".join(systems)}
        if name in known:
            told = {**_known_of(known[name]), **told}
        lines += section(2, f"`{name}`", f"data-{name}", *facts(told, code=("archive",)))
    return "\n".join(lines)


def _known_of(info: DatasetInfo) -> dict[str, str]:
    counts = {"clients": info.clients, "items": info.items, "ratings": info.ratings}
    files = ", ".join(file.name for file in info.files)
    told = {
        "title": info.title,
        "archive": info.origin,
        "files": files and f"`{files}`",
        **{name: count and f"{count:,}" for name, count in counts.items()},
        "terms": info.licence,
        "citation": info.citation,
    }
    return {name: text for name, text in told.items() if text}


# --- commands ------------------------------------------------------------------------------------


def commands() -> str:
    """Every command: what ``secure-fedrec COMMAND --help`` prints."""
    lines: list[str] = []
    names = re.findall(r"^    ([a-z]+)  ", _help(), re.MULTILINE)
    for name in names:
        title = f"`secure-fedrec {name}`"
        lines += section(2, title, f"command-{name}", "```text", _help(name), "```")
    return "\n".join(lines)


def _help(*words: str) -> str:
    """What a command line prints with ``--help``, 96 columns wide."""
    told = io.StringIO()
    with (
        mock.patch.dict(os.environ, COLUMNS="96"),
        contextlib.redirect_stdout(told),
        contextlib.suppress(SystemExit),
    ):
        command_line.parse([*words, "--help"])
    return told.getvalue().rstrip()


def exit_codes() -> str:
    """What the shell is told."""
    rows = (f"| {code} | {cell(text)} |" for code, text in EXIT_CODES.items())
    return "\n".join(("| code | means |", "|---|---|", *rows))


def formats() -> str:
    """Files of a report."""
    rows = (
        f"| `{name}` | `{each.file}` | {cell(each.purpose)} |" for name, each in WRITERS.items()
    )
    return "\n".join(("| format | file | for |", "|---|---|---|", *rows))


# --- Python --------------------------------------------------------------------------------------


def python_api() -> str:
    """What can be imported: what packages hand on, and the modules that pages import from.

    A name that several hand on is described where it comes first.
    """
    lines: list[str] = []
    described: dict[int, str] = {}
    for module, names in documented_names().items():
        found = resolve_name(module)
        lead = (inspect.getdoc(found) or "").partition("\n\n")[0]
        own: list[tuple[str, str]] = []
        others: list[tuple[str, str]] = []
        for name in names:
            home = described.setdefault(id(getattr(found, name)), module)
            (own if home == module else others).append((name, home))
        lines += section(2, f"`{module}`", f"module-{module}", plain(lead), "")
        stable = [f"`{name}`" for name in names if f"{module}.{name}" in STABLE]
        if stable:
            lines += [f"Stable: {', '.join(stable)}.", ""]
        if others:
            also = ", ".join(f"`{name}` ([{home}](#module-{home}))" for name, home in others)
            lines += [f"Also here: {also}.", ""]
        lines += ["```{eval-rst}", f".. py:module:: {module}", "   :no-index:", ""]
        lines += [_directive(found, module, name) for name, _ in own] + ["```"]
    return "\n".join(lines)


def python_names() -> str:
    """The same in plain Markdown: every name with the first line of its docstring."""
    lines: list[str] = []
    for module, names in documented_names().items():
        found = resolve_name(module)
        lead = (inspect.getdoc(found) or "").partition("\n\n")[0]
        lines += ["", f"## `{module}`", "", plain(" ".join(lead.split())), ""]
        for name in names:
            value = getattr(found, name)
            text = inspect.getdoc(value) if isinstance(value, type) or callable(value) else None
            told = plain(" ".join((text or "").partition("\n\n")[0].split()))
            stable = " (stable)" if f"{module}.{name}" in STABLE else ""
            lines.append(f"- `{name}`{stable}{f': {told}' if told else ''}")
    return "\n".join(lines)


def _directive(found: Any, module: str, name: str) -> str:
    value = getattr(found, name)
    if isinstance(value, type):
        lines = [f".. autoclass:: {module}.{name}", "   :members:"]
        if getattr(value, "_is_protocol", False):  # whoever writes one needs the inherited ones too
            lines.append("   :inherited-members: Protocol")
        return "\n".join(lines) + "\n"
    if callable(value) and hasattr(value, "__code__"):
        return f".. autofunction:: {module}.{name}\n"
    # The text of a record is thousands of characters, with addresses of functions in it.
    return f".. autodata:: {module}.{name}\n   :no-value:\n"


def documented_names() -> dict[str, tuple[str, ...]]:
    """Names by module: of packages what they list, of modules what pages import from them."""
    found: dict[str, set[str]] = {}
    for package in (secure_fedrec, attacks, audits):
        root = Path(str(package.__file__)).parent
        for path in sorted(root.rglob("__init__.py")):
            listed = _listed(path)
            if listed:
                found[".".join((root.name, *path.parent.relative_to(root).parts))] = set(listed)
    for page in PAGES:
        for tree in map(ast.parse, _PYTHON.findall(page.read_text(encoding="utf-8"))):
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and _ours(node.module or ""):
                    names = found.setdefault(str(node.module), set())
                    names |= {alias.name for alias in node.names}
    for module, names in found.items():
        names |= set(getattr(resolve_name(module), "__all__", ()))
    return {module: tuple(sorted(names)) for module, names in sorted(found.items())}


PAGES = (
    ROOT / "README.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if "_build" not in p.parts),
)
"""Every page whose blocks of Python are imports to be described."""

_PYTHON = re.compile(r"^```py(?:thon)?\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _ours(module: str) -> bool:
    return module.partition(".")[0] in ("secure_fedrec", "attacks", "audits")


def _listed(path: Path) -> list[str]:
    """The names that a package hands on: of ``__all__``, or imported as what they are called."""
    handed_on = []
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            return names
        if isinstance(node, ast.ImportFrom):
            handed_on += [each.name for each in node.names if each.asname == each.name]
    return handed_on


_SUBJECTS = {
    "masking": "Masks",
    "paillier": "Paillier",
    "shared": "Shared uploads",
    "dp": "Noise",
    "routing": "Mixes",
    "bags": "Bags",
    "ease": "Federated EASE",
    "hosts": "Hosts",
    "flower": "Flower apps",
    "means": "Means for other loops",
}


def claim_table() -> str:
    """Every claim with the tests that carry its mark, by subject; first what is of no one layer."""
    lines: list[str] = []
    found = claims()
    for subject, title in {"": "Everywhere", **_SUBJECTS}.items():
        lines += ["", f"## {title}", "", "| claim | held by |", "|---|---|"]
        for name, claim in found.items():
            first = name.partition("-")[0]
            if (first if first in _SUBJECTS else "") == subject:
                lines.append(
                    f"| {cell(claim.text)} | {'<br>'.join(f'`{t}`' for t in claim.tests)} |"
                )
    return "\n".join(lines)


PARTS: Mapping[str, Callable[[], str]] = {
    "configuration": configuration,
    "figures": figures,
    "attacks": attack_cards,
    "layers": layers,
    "presets": presets,
    "claims": claim_table,
    "data-sets": data_sets,
    "commands": commands,
    "exit-codes": exit_codes,
    "formats": formats,
    "python": python_api,
    "parquet-format": lambda: inspect.getdoc(parquet_form) or "",
    "transcript-format": lambda: inspect.getdoc(validation) or "",
    "truth-format": lambda: inspect.getdoc(truth_file) or "",
}
"""Parts by the name that pages ask for."""
