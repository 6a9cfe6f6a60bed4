"""The command line: ``python -m benchmarks NAME [--quick] [--json] [--data-dir DIR]``."""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import fedrec
from benchmarks.federations import Options
from secure_fedrec.errors import ConfigError, DataError

Result = dict[str, Any]

REGISTRY: dict[str, Callable[[Options], Result]] = {"fedrec": fedrec.run}
"""Name to benchmark."""

_BAD_USAGE = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one benchmark and print its result.

    Args:
        arguments: the command line without the program; ``sys.argv`` by default.

    Returns:
        0, or 2 if the data are wrong (argparse itself exits with 2 on bad usage).
    """
    parsed = _parser().parse_args(arguments)
    options = Options(quick=parsed.quick, data_dir=parsed.data_dir)
    try:
        result = REGISTRY[parsed.name](options)
    except (ConfigError, DataError) as problem:
        print(f"benchmarks: {problem}", file=sys.stderr)
        return _BAD_USAGE
    print(json.dumps(result, indent=2) if parsed.json else as_table(result))
    return 0


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
        "--data-dir",
        type=Path,
        help="folder of the MovieLens sets (default: SECURE_FEDREC_DATA; else synthetic data)",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
