"""Benchmarks: ``python -m benchmarks NAME [--quick] [--json] [--ours-only] [--data-dir DIR]``.

``--folder DIR`` keeps what takes long, and goes on with it.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.federations import Options
from secure_fedrec.core.allocator import KEPT, KEPT_BY_SERVERS, reuse_freed_memory
from secure_fedrec.errors import ConfigError, DataError

Result = dict[str, Any]
Benchmark = Callable[[Options], Result]


# A benchmark is imported when it is run: whoever lacks the peer of one can run the others.
def _audit() -> Benchmark:
    from benchmarks import audit  # noqa: PLC0415

    return audit.run


def _audit_ml_1m() -> Benchmark:
    from benchmarks import audit_large  # noqa: PLC0415

    return audit_large.ml_1m


def _audit_10m() -> Benchmark:
    from benchmarks import audit_large  # noqa: PLC0415

    return audit_large.ten_million


def _audit_scale() -> Benchmark:
    from benchmarks import audit_scale  # noqa: PLC0415

    return audit_scale.run


def _fedrec() -> Benchmark:
    from benchmarks import fedrec  # noqa: PLC0415

    return fedrec.run


def _files() -> Benchmark:
    from benchmarks import files  # noqa: PLC0415

    return files.run


def _flower() -> Benchmark:
    from audits.deploy.command import silenced  # noqa: PLC0415

    silenced()  # Flower reads it when it is imported
    from benchmarks import flower  # noqa: PLC0415

    return flower.run


def _item_tables() -> Benchmark:
    from benchmarks import item_tables  # noqa: PLC0415

    return item_tables.run


def _masking() -> Benchmark:
    from benchmarks import flower_secagg, masking  # noqa: PLC0415

    return partial(masking.run, peer=flower_secagg.PEER)


def _masking_alone() -> Benchmark:
    from benchmarks import masking  # noqa: PLC0415

    return partial(masking.run, peer=None)


def _noise() -> Benchmark:
    from benchmarks import noise  # noqa: PLC0415

    return noise.run


def _paillier() -> Benchmark:
    from benchmarks import paillier  # noqa: PLC0415

    return paillier.run


def _personalized() -> Benchmark:
    from benchmarks import personalized  # noqa: PLC0415

    return personalized.run


def _scale() -> Benchmark:
    from benchmarks import scale  # noqa: PLC0415

    return scale.run


REGISTRY: dict[str, Callable[[], Benchmark]] = {
    "audit": _audit,
    "audit_10m": _audit_10m,
    "audit_ml_1m": _audit_ml_1m,
    "audit_scale": _audit_scale,
    "fedrec": _fedrec,
    "files": _files,
    "flower": _flower,
    "item_tables": _item_tables,
    "masking": _masking,
    "noise": _noise,
    "paillier": _paillier,
    "personalized": _personalized,
    "scale": _scale,
}
"""Name to what imports the benchmark."""

ALONE: dict[str, Callable[[], Benchmark]] = {"masking": _masking_alone}
"""Benchmarks that can leave out their peer."""

_PEERS = ("flwr", "gmpy2", "opendp", "phe")
_BAD_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark and print its result.

    Args:
        arguments: the command line without the program; ``sys.argv`` by default.

    Returns:
        0, or 2 if the data are wrong or a peer is missing (argparse itself exits with 2 on bad
        usage).
    """
    parsed = _parser().parse_args(arguments)
    if arguments is None:
        # As commands do, and ``deploy``, whose process is a server's.
        reuse_freed_memory(KEPT_BY_SERVERS if parsed.name == "masking" else KEPT)
    options = Options(quick=parsed.quick, data_dir=parsed.data_dir, folder=parsed.folder)
    try:
        result = find(parsed.name, ours_only=parsed.ours_only)(options)
    except (ConfigError, DataError) as problem:
        print(f"benchmarks: {problem}", file=sys.stderr)
        return _BAD_USAGE
    print(json.dumps(result, indent=2) if parsed.json else as_table(result))
    return 0


def find(name: str, *, ours_only: bool = False) -> Benchmark:
    """Import a benchmark.

    Args:
        name: one of ``REGISTRY``.
        ours_only: without its peer.

    Raises:
        ConfigError: its peer is not installed, or it cannot do without.
    """
    if ours_only and name not in ALONE:
        raise ConfigError("--ours-only", name, "measures nothing without its peer", ALONE)
    try:
        return (ALONE if ours_only else REGISTRY)[name]()
    except ModuleNotFoundError as missing:
        module = (missing.name or "").partition(".")[0]
        if module not in _PEERS:
            raise
        advice = "pip install 'secure-fedrec[benchmarks]'"
        if name in ALONE:
            advice += ", or leave the peer out with --ours-only"
        raise ConfigError(
            "benchmark", name, f"measures against {module}, which is not installed: {advice}"
        ) from missing


def as_table(result: Result) -> str:
    """The result for people: one line per figure, judged ones with their target."""
    flat = dict(_flatten(result, ""))
    targets = {
        key.removeprefix("targets."): flat[key] for key in flat if key.startswith("targets.")
    }
    shown = {key: value for key, value in flat.items() if not key.startswith("targets.")}
    width = max(map(len, shown))
    return "\n".join(
        f"{key:<{width}}  {_readable(value):>12}  {targets.get(key, '')}".rstrip()
        for key, value in shown.items()
    )


def _flatten(value: Result, prefix: str) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for key, inner in value.items():
        if isinstance(inner, dict):
            found.extend(_flatten(inner, f"{prefix}{key}."))
        else:
            found.append((prefix + key, inner))
    return found


def _readable(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return " ".join(_readable(inner) for inner in value)
    return str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=sorted(REGISTRY), help="which benchmark")
    parser.add_argument("--quick", action="store_true", help="fewer clients and repeats, < 45 s")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--ours-only", action="store_true", help="leave out the peer (masking); no ratios to it"
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        help="folder of the MovieLens sets (default: SECURE_FEDREC_DATA; else synthetic data)",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="keep the long runs of audit, audit_ml_1m, audit_10m here, and go on with them",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
