"""One study of HPFL's tables in a process of its own, for many at once on a larger machine.

``python -m benchmarks.hpfl_study --method hpfl --data ml-100k-zip --seed 1 --data-dir DIR --out
RESULTS/hpfl-1.json``; with ``--setting N`` it tries one setting only. ``secure-fedrec reproduce
hpfl --results RESULTS`` reads whatever lies in the folder.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from secure_fedrec.data import ORGANISATIONS, load_organisations
from secure_fedrec.errors import ConfigError, DataError
from secure_fedrec.studies.hpfl.settings import (
    FORMS,
    GRIDS,
    METHODS,
    VARIANTS,
    grid_for,
    starts_of,
)
from secure_fedrec.studies.hpfl.table_entry import StudyConfig, run_study, write_study

__all__ = ["main"]

_BAD_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one study and write its result.

    Args:
        arguments: the command line without the program; ``sys.argv`` by default.

    Returns:
        0, or 2 if a setting or the data are wrong.
    """
    parsed = _parser().parse_args(arguments)
    try:
        organisations = load_organisations(parsed.data, parsed.data_dir, seed=parsed.seed)
        config = StudyConfig(
            method=parsed.method,
            seed=parsed.seed,
            grid=parsed.grid or grid_for(parsed.data),
            start=parsed.start or starts_of(parsed.method)[0],
            form=parsed.form,
        )
        study = run_study(organisations, config, only=parsed.setting)
        write_study(study, parsed.out)
    except (ConfigError, DataError) as problem:
        print(f"hpfl_study: {problem}", file=sys.stderr)
        return _BAD_USAGE
    report = study.report
    found = ", ".join(f"{name} {value:.4f}" for name, value in report.get("test", {}).items())
    found = found or "diverged"
    named = f"{parsed.method} {parsed.data} from {report['start']}, seed {parsed.seed}"
    print(f"{named}: {found} ({report['seconds']:.0f} s)")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hpfl_study", description=__doc__)
    parser.add_argument("--method", required=True, choices=(*METHODS, *VARIANTS))
    parser.add_argument("--data", required=True, choices=sorted(ORGANISATIONS))
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="JSON file to write")
    parser.add_argument("--data-dir", type=Path, help="folder of the data sets")
    parser.add_argument("--grid", choices=sorted(GRIDS), help="default: that of the data")
    parser.add_argument("--setting", type=int, help="only this place of the grid")
    parser.add_argument("--start", help="of training (default: the first that the method has)")
    parser.add_argument("--form", choices=FORMS, default="paper", help="of the model")
    return parser


if __name__ == "__main__":
    sys.exit(main())
