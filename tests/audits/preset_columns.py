"""What README's table of presets says beside their outcomes, told from their configurations.

``python -m tests.audits.preset_columns`` writes these columns anew.
"""

import re
from collections.abc import Callable
from pathlib import Path

from attacks.suite import SUITE, UNATTACKED
from audits.config.audit import AuditConfig, load_config
from audits.gates.figures import secret_of
from audits.presets import PRESETS, QUICKSTART
from audits.report.not_tried import not_tried
from secure_fedrec.protection import RECORDS

README = Path(__file__).parents[2] / "README.md"
HEADS = ("configuration", "system, adversary", "outcome", "documented secrets", "not tried")
ROW = re.compile(r"^\| `(?P<name>[\w-]+)` \| (?P<cells>.*) \|$", re.MULTILINE)

_IN_ROWS = ("no adversary", "no payloads", "switched off")
"""Kinds that differ from preset to preset and stand in its configuration."""


def documented_secrets(config: AuditConfig) -> str:
    """Secrets that gates of a configuration document as leaks."""
    found = (secret_of(gate.metric) for gate in config.gates if gate.documents_leak)
    return ", ".join(dict.fromkeys(filter(None, found))) or "none"


def left_out(config: AuditConfig) -> str:
    """What a configuration does not try, beside what no attack does."""
    report = {
        "configuration": config.as_json(),
        "findings": [],
        "switched_off": [name for name in SUITE if name not in config.attacks],
    }
    stated = (RECORDS[layer].traits.denoising for layer in config.protection)
    denoisers = any(each not in (None, "none") for each in stated)
    told = not_tried(report, rounds=config.algorithm.rounds, denoisers=denoisers)
    return "; ".join(each["text"] for each in told if each["kind"] in _IN_ROWS) or "nothing else"


COLUMNS: tuple[Callable[[AuditConfig], str], ...] = (documented_secrets, left_out)


def expected() -> dict[str, list[str]]:
    """The derived cells of each preset."""
    configs = {name: load_config(QUICKSTART.with_stem(name)) for name in PRESETS}
    return {name: [column(config) for column in COLUMNS] for name, config in configs.items()}


def nobody_tries() -> str:
    """What stands below the table, once for all presets."""
    never = ", ".join(words for words, secret in UNATTACKED.items() if secret is None)
    return f"Not tried by any: {never}."


def rows(text: str) -> dict[str, list[str]]:
    """Cells of README's table behind the name of the preset."""
    table = text.partition(f"| {' | '.join(HEADS)} |")[2].partition("\n\n")[0]
    return {row["name"]: row["cells"].split(" | ") for row in ROW.finditer(table)}


def main() -> None:
    """Write the columns anew."""
    derived, text = expected(), README.read_text(encoding="utf-8")

    def written(row: re.Match[str]) -> str:
        if row["name"] not in derived:
            return row[0]
        cells = [*row["cells"].split(" | ")[:2], *derived[row["name"]]]
        return f"| `{row['name']}` | {' | '.join(cells)} |"

    README.write_text(ROW.sub(written, text), encoding="utf-8")


if __name__ == "__main__":
    main()
