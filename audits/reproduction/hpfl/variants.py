"""Variants of HPFL beside its tables: one setting each, under every start.

Beside the test records stand the validation records, which chose the round, and by which settings
would be chosen.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from audits.reproduction.hpfl.paper import Variants
from audits.reproduction.hpfl.studies import Found, Needed, Studies

_NAMES = 62


def needed_variants(
    variants: Variants, seeds: Sequence[int], starts: Sequence[str]
) -> list[Needed]:
    """Every study that the variants need."""
    needed = [
        place
        for start in starts
        for name in variants.rows
        for place in _places(variants, name, seeds, start)
    ]
    return list(dict.fromkeys(needed))


def compare_variants(
    variants: Variants, studies: Studies, seeds: Sequence[int], starts: Sequence[str]
) -> list[dict[str, Any]]:
    """The variants as JSON values: by start, the measure per seed; None where there is no study."""
    return [
        {
            "variant": name,
            "method": method,
            "grid": grid,
            variants.measure: {
                start: [
                    _reached(studies.get(place), variants.measure)
                    for place in _places(variants, name, seeds, start)
                ]
                for start in starts
            },
        }
        for name, (method, grid) in variants.rows.items()
    ]


def variants_as_lines(
    variants: Variants, compared: Sequence[Mapping[str, Any]], seeds: Sequence[int]
) -> list[str]:
    """The same as text."""
    starts = list(compared[0][variants.measure])
    shown = ", ".join(map(str, seeds))
    lines = [
        f"Variants on {variants.data}, {variants.measure} in test (validation), seed {shown}",
        f"{'':{_NAMES}}" + "".join(f"{start:>18}" for start in starts),
    ]
    for each in compared:
        cells = [", ".join(_shown(one) for one in each[variants.measure][s]) for s in starts]
        lines.append(f"{each['variant']:{_NAMES}}" + "".join(f"{cell:>18}" for cell in cells))
    return lines


def _places(variants: Variants, name: str, seeds: Sequence[int], start: str) -> list[Needed]:
    method, grid = variants.rows[name]
    return [Needed(variants.data, method, seed, start, grid) for seed in seeds]


def _reached(found: Found | None, measure: str) -> dict[str, float] | None:
    if found is None:
        return None
    return {part: float(found.report[part][measure]) for part in ("test", "validation")}


def _shown(reached: Mapping[str, float] | None) -> str:
    return "-" if reached is None else f"{reached['test']:.4f} ({reached['validation']:.4f})"
