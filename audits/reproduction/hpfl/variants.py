"""Variants of HPFL beside its tables: one setting each, on one seed, under every start."""

from collections.abc import Mapping, Sequence
from typing import Any

from audits.reproduction.hpfl.paper import Variants
from audits.reproduction.hpfl.studies import Found, Needed

__all__ = ["compare_variants", "needed_variants", "variants_as_lines"]

_NAMES = 62


def needed_variants(
    variants: Variants, seeds: Sequence[int], starts: Sequence[str]
) -> list[Needed]:
    """Every study that the variants need."""
    return [
        Needed(variants.data, method, seed, start, grid)
        for seed in seeds
        for start in starts
        for method, grid in variants.rows.values()
    ]


def compare_variants(
    variants: Variants,
    studies: Mapping[Needed, Found],
    seeds: Sequence[int],
    starts: Sequence[str],
) -> list[dict[str, Any]]:
    """The variants as JSON values: by start, one number per seed; None where there is no study."""
    return [
        {
            "variant": name,
            "method": method,
            "grid": grid,
            variants.measure: {
                start: [
                    _test(studies.get(Needed(variants.data, method, seed, start, grid)), variants)
                    for seed in seeds
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
        f"Variants on {variants.data}, test {variants.measure}, seed {shown}",
        f"{'':{_NAMES}}" + "".join(f"{start:>18}" for start in starts),
    ]
    for each in compared:
        cells = [", ".join(_number(value) for value in each[variants.measure][s]) for s in starts]
        lines.append(f"{each['variant']:{_NAMES}}" + "".join(f"{cell:>18}" for cell in cells))
    return lines


def _test(found: Found | None, variants: Variants) -> float | None:
    return None if found is None else float(found.report["test"][variants.measure])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
