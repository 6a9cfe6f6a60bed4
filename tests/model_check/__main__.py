"""``python -m tests.model_check``: the table of states and verdicts (``make model-check``).

Exit code 1 if a rule's attack is not found, an attack is found with all rules on, or a state with
real keys ends otherwise than the model says.
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import groupby

from tqdm import tqdm

from tests.model_check.cases import CASES, Model, every_committee, every_setting, search
from tests.model_check.replay import Replays
from tests.model_check.settings import Setting

_HEAD = " n  k   t  c window surv quorum comm"
_LEAST_REPLAYS = 200


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.model_check", description=__doc__)
    parser.add_argument("--clients", type=int, default=11, help="largest ring (default 11)")
    parser.add_argument("--each", action="store_true", help="a line for every parameter set")
    parser.add_argument("--replays", type=int, default=16, help="states with real keys per row")
    options = parser.parse_args(arguments)
    begun = time.process_time()
    held = all_rules(options.clients, each=options.each)
    print()
    held &= rules_removed(options.replays)
    print(f"\n{time.process_time() - begun:.0f} CPU seconds")
    return 0 if held else 1


def all_rules(most: int, *, each: bool) -> bool:
    """Every parameter set with all rules on; whether nothing was found."""
    print("All rules: every parameter set against an active server, by graph")
    print("stories of who shared (sharers) and of who survived (stories, up to n = 10)")
    print(_HEAD + "  model           states  verdict" if each else "")
    held = True
    total: dict[str, list[int]] = {"sharers": [0, 0], "stories": [0, 0]}
    work = list(_work(most))
    bar = tqdm(work, desc="all rules", unit="set", file=sys.stderr, disable=None)
    lines: list[tuple[tuple[str, int, int], Setting, int, dict[str, int]]] = []
    for model, setting in bar:
        found = search(setting, model)
        total[model][0] += 1
        total[model][1] += found.states
        held &= not found.attacks
        degree = setting.n - 1 if setting.degree is None else setting.degree
        lines.append(((model, setting.n, degree), setting, found.states, found.attacks))
        if each:
            tqdm.write(f"{setting.name}  {model:<8} {found.states:>13,}  {_verdict(found.attacks)}")
    if not each:
        print(" n  k        t  window  model    sets           states  verdict")
        for (name, n, degree), rows in groupby(lines, key=lambda line: line[0]):
            print(_summary(name, n, degree, list(rows)))
    for name, (sets, states) in total.items():
        print(f"{name}: {sets} parameter sets, {states:,} states")
    return held


def rules_removed(replays: int) -> bool:
    """Each rule off where that lets an attack in; whether all are found, and none with it on."""
    print("Each rule switched off; then, with all rules on, the same parameters (repaired ones if")
    print("they are what is missing); states played with real keys, rule off | all rules on")
    print(f"{'rule off':<30}{_HEAD}  model           states  verdict; all rules; real keys")
    held, played = True, Replays()
    for case in tqdm(CASES, desc="rules off", unit="row", file=sys.stderr, disable=None):
        found, safe = search(case.setting, case.model, case.without), search(case.safe, case.model)
        before = played.opened, played.held
        played.play(case, most=replays)
        real = f"{played.opened - before[0]} open | {played.held - before[1]} hold"
        held &= found.attacks == case.attacks and not safe.attacks
        tqdm.write(
            f"{case.title:<30}{case.setting.name}  {case.model:<8} {found.states:>13,}  "
            f"{_verdict(found.attacks)}; {_verdict(safe.attacks)}; {real}"
        )
    print(
        f"{played.states} states played with real keys, {played.opened} opened as predicted with "
        f"the rule off, {played.held} held with all rules on, {len(played.wrong)} otherwise"
    )
    return held and not played.wrong and played.states >= _LEAST_REPLAYS


def _work(most: int) -> Iterator[tuple[Model, Setting]]:
    for setting in every_setting(range(5, most + 1)):
        yield "sharers", setting
    for setting in every_setting(range(5, min(most, 10) + 1), corrupt=range(3)):
        yield "stories", setting
    for setting in every_committee(range(5, min(most, 8) + 1)):
        yield "stories", setting


def _summary(
    model: str,
    n: int,
    degree: int,
    rows: list[tuple[tuple[str, int, int], Setting, int, dict[str, int]]],
) -> str:
    thresholds = _span(setting.threshold for _, setting, _, _ in rows)
    windows = [setting.window for _, setting, _, _ in rows if setting.window is not None]
    attacks: dict[str, int] = {}
    for _, _, _, found in rows:
        for kind, count in found.items():
            attacks[kind] = attacks.get(kind, 0) + count
    states = sum(count for _, _, count, _ in rows)
    return (
        f"{n:>2} {degree:>2} {thresholds:>8} {_span(windows) if windows else '-':>7}  {model:<8} "
        f"{len(rows):>4} {states:>16,}  {_verdict(attacks)}"
    )


def _span(values: Iterable[int]) -> str:
    found = sorted(set(values))
    return str(found[0]) if len(found) == 1 else f"{found[0]}..{found[-1]}"


def _verdict(attacks: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in attacks.items()) or "no attack"


if __name__ == "__main__":
    sys.exit(main())
