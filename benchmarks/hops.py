"""``python -m benchmarks.hops``: hops between files that one real masked round takes.

A hop is a call or a return that leaves one file of the package for another. Ten clients, 24 items,
rank 3, matrix factorization; the second round, so that nothing is counted that happens once.
"""

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import secure_fedrec
from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import Sizes, build_stack
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.streams import Streams
from secure_fedrec.wire import RecordingPolicy

_ROOT = str(Path(secure_fedrec.__file__).parent)


def masked_run() -> RecordedRun:
    """A run whose masking is carried out, before its first round."""
    streams, algorithm = Streams.from_seed(5), PMF(PMFConfig(rank=3, rounds=3, init_scale=0.3))
    table = generate(SyntheticConfig(clients=10, items=24, mean_ratings=6.0, seed=1))
    sizes = Sizes(n_clients=10, n_items=24, width=3, cohort=10)
    layers = {"masking": MaskingLayerConfig(execution="real")}
    return RecordedRun(
        algorithm=algorithm,
        stack=build_stack(layers, sizes=sizes, codec=FixedPoint(), streams=streams),
        problem=rating_problem(algorithm, table),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1, 2, 3)),
    )


def hops_of(run: RecordedRun) -> Counter[tuple[str, str]]:
    """Hops of the next round, by the two files."""
    found: Counter[tuple[str, str]] = Counter()
    here = ""

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal here
        del argument
        at = frame if event == "call" else frame.f_back if event == "return" else None
        file = "" if at is None else at.f_code.co_filename
        if file.startswith(_ROOT) and file != here:
            found[here, file] += 1
            here = file

    sys.setprofile(trace)
    try:
        run.run_round()
    finally:
        sys.setprofile(None)
    return found


def main() -> None:
    """Print how many, and between which files most."""
    run = masked_run()
    run.run_round()
    found = hops_of(run)
    print(f"{found.total()} hops between {len({file for pair in found for file in pair})} files")
    for (one, other), times in found.most_common(10):
        names = (Path(file).relative_to(_ROOT) if file else "the host" for file in (one, other))
        print(f"{times:6d}  {' -> '.join(map(str, names))}")


if __name__ == "__main__":
    main()
