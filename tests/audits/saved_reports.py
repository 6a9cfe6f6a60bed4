"""Reports of small audits, kept beside the tests that look at their pages.

Run from the repository to make them anew:

    python -m tests.audits.saved_reports
"""

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from audits.config.audit import load_config
from audits.presets import PRESETS
from audits.run import audit as runner
from tests.audits.stand_ins import STAND_INS

FOLDER = Path(__file__).with_name("reports")
CONFIGS = Path(runner.__file__).parents[1] / "configs"

UNJUDGED = {"gates": [{"metric": "rmse", "max": 5.0}]}
SAVED: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "red": ("fedrecpp-collusion-ml100k", {}),
    "green": ("skellam-ml100k", {}),
    "inconclusive": ("plain", UNJUDGED),
    "documented": ("quickstart", {}),
    "split": ("furl-quickstart", {}),
    "hierarchical": ("hpfl-quickstart", {}),
}
"""Preset and what is changed in it, by the name of its file."""

POINTS = 24


def saved(name: str) -> dict[str, Any]:
    """A kept report."""
    report: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return report


def _thinned(report: dict[str, Any]) -> dict[str, Any]:
    """With fewer points of every curve: a chart of them is a chart all the same."""
    for finding in report["findings"]:
        if (roc := finding["roc"]) is not None:
            step = -(-len(roc["fpr"]) // POINTS)
            finding["roc"] = {name: line[::step][:-1] + line[-1:] for name, line in roc.items()}
    return report


def main() -> None:
    """Run the audits and keep their reports."""
    FOLDER.mkdir(exist_ok=True)
    for name, (preset, changes) in SAVED.items():
        assert preset in PRESETS
        config = load_config(CONFIGS / f"{preset}.toml", {**STAND_INS.get(preset, {}), **changes})
        with tempfile.TemporaryDirectory() as folder:
            result = runner.audit(
                config,
                out=Path(folder) / "run",
                data_dir=None,
                resume=False,
                command=["secure-fedrec", "audit", f"{preset}.toml"],
                progress=False,
            )
        text = json.dumps(_thinned(dict(result.report)), separators=(",", ":"), ensure_ascii=False)
        (FOLDER / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")
        print(name, result.verdict.outcome)


if __name__ == "__main__":
    main()
