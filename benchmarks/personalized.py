"""``personalized``: a round of FURL and a round of HPFL against plain PyTorch loops.

Judged: ``speedup_vs_loop``, the worse of the two speedups. Both contenders of a part train the same
models on the same data to the same weights (``furl``, ``hpfl``).
"""

from typing import Any, Final

from benchmarks import furl, hpfl
from benchmarks.federations import Options

__all__ = ["run"]

TARGETS: Final = {"speedup_vs_loop": "> 1"}


def run(options: Options) -> dict[str, Any]:
    """All figures of the benchmark, as JSON values."""
    parts = {"furl": furl.run(options), "hpfl": hpfl.run(options)}
    return {
        "benchmark": "personalized",
        "speedup_vs_loop": min(part["speedup_vs_torch_loop"] for part in parts.values()),
        **parts,
        "targets": TARGETS,
    }
