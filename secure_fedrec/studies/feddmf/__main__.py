"""``python -m secure_fedrec.studies.feddmf FOLDER [FIGURE ...]``: make what is missing."""

import argparse
from pathlib import Path

from secure_fedrec.data import RatingTable, load
from secure_fedrec.studies.feddmf.figures import FIGURES, file_name, without_defaults
from secure_fedrec.studies.feddmf.methods import RUNS
from secure_fedrec.studies.feddmf.quality import KINDS
from secure_fedrec.studies.feddmf.study import run_study


def main() -> None:
    """Run the studies of some figures, one after the other; what is there already is left."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where reports lie")
    parser.add_argument("figures", nargs="*", help=f"of {', '.join(FIGURES)}; all without any")
    parser.add_argument("--quick", action="store_true", help="three epochs of a smaller model")
    parser.add_argument("--methods", nargs="*", choices=RUNS, help="of these methods alone")
    parser.add_argument("--seeds", type=int, help="the first so many of three")
    asked = parser.parse_args()
    for name in asked.figures:
        if name not in FIGURES:
            parser.error(f"no figure {name}: there are {', '.join(FIGURES)}")
    tables: dict[str, RatingTable] = {}
    for name in asked.figures or FIGURES:
        for study in map(without_defaults, FIGURES[name]):
            if asked.seeds is not None and study.split.seed >= asked.seeds:
                continue
            if asked.methods is not None and study.method not in asked.methods:
                continue
            if study.data not in tables:
                tables[study.data] = load(study.data)
            path = asked.folder / file_name(study)
            config = study.quick() if asked.quick else study
            report = run_study(tables[study.data], config, path)
            last = report["epochs"][-1]
            across = {kind: last[kind]["across"] for kind in KINDS}
            figures = [f"{k} F1 {v['tuned']:.4f} AUC {v['auc']:.4f}" for k, v in across.items()]
            print(f"{path.stem}: across, {', '.join(figures)}", flush=True)


if __name__ == "__main__":
    main()
