"""All attacks named, once, on a recorded run: ``python benchmarks/attack_once.py FOLDER NAME...``.

It runs on the packages that the path names, of this commit or of an earlier one, and prints the CPU
seconds of the attacks alone as JSON.
"""

import json
import sys
from pathlib import Path
from time import process_time

from audits.commands import _recorded_truth
from audits.run.audit import attack_all
from secure_fedrec.wire import Transcript


def main(folder: Path, names: list[str]) -> None:
    """Attack one recording."""
    transcript = Transcript.open(folder / "transcript")
    config, truth = _recorded_truth(folder, transcript)
    start = process_time()
    attack_all(transcript, truth, config.adversaries, names, seed=config.seed, bars=False)
    print(json.dumps({"cpu_seconds": process_time() - start}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
