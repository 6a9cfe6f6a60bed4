"""``python -m benchmarks.hops``: hops between files that one deployed masked round takes.

A hop is a call or a return that leaves one file of the package for another. Five clients, each on a
host of its own in this process, 24 items, rank 3, matrix factorization; the second round, so that
nothing is counted that happens once. Masks withstand an active server, which takes a step more than
the curious one of their default (``--curious``). Lines of logs are not written, whatever the
process is set to: one more file takes part where they are.
"""

import json
import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import secure_fedrec
from audits.config.audit import parse_config
from audits.deploy.homes import Layout, open_coordinator, open_site, provision
from audits.run.build import build_federation, load_dataset
from secure_fedrec.engines.distributed import Coordinator, Site

_ROOT = Path(secure_fedrec.__file__).parent
_CONFIG = {
    "seed": 5,
    "data": {"name": "synthetic", "clients": 5, "items": 24, "mean_ratings": 6.0},
    "algorithm": {"name": "pmf", "rank": 3, "rounds": 3},
}


class _InMemory:
    """Sites in this process, by client (a ``Transport``)."""

    def __init__(self, sites: Mapping[int, Site]) -> None:
        self._sites = sites

    def addresses(self) -> list[int]:
        return list(self._sites)

    def exchange(
        self, label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        for client, data in messages.items():
            yield client, self._sites[client].answer(data)


def deployed(folder: Path, adversary: str) -> Coordinator:
    """The server's host of a federation in a folder, before its first round."""
    config = parse_config({**_CONFIG, "protection": [{"layer": "masking", "adversary": adversary}]})
    layout = Layout(folder)
    provision(build_federation(config, load_dataset(config, None).task(0), priced=False), layout)
    sites = {n: open_site(layout.agreement, layout.site(n)) for n in layout.sites()}
    return open_coordinator(layout, _InMemory(sites))


def hops_of(coordinator: Coordinator) -> Counter[tuple[str, str]]:
    """Hops of the next round, by the two files; the first one comes from none, ""."""
    found: Counter[tuple[str, str]] = Counter()
    here, root = "", str(_ROOT)

    def trace(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal here
        del argument
        at = frame if event == "call" else frame.f_back if event == "return" else None
        file = "" if at is None else at.f_code.co_filename
        if file.startswith(root) and file != here:
            found[here, file] += 1
            here = file

    log = logging.getLogger("secure-fedrec")
    level = log.level
    log.setLevel(logging.WARNING)
    sys.setprofile(trace)
    try:
        coordinator.run_round()
    finally:
        sys.setprofile(None)
        log.setLevel(level)
    return found


def counted(adversary: str = "active") -> dict[str, Any]:
    """Hops, files, and hops by the two files that they are between, most first."""
    with tempfile.TemporaryDirectory(prefix="secure-fedrec-") as folder:
        coordinator = deployed(Path(folder), adversary)
        coordinator.run_round()
        found = hops_of(coordinator)
    names = {file: str(Path(file).relative_to(_ROOT)) for _, file in found}
    pairs = [
        (names.get(one, ""), names[other], times) for (one, other), times in found.most_common()
    ]
    return {"hops": found.total(), "files": len(names), "pairs": pairs}


def main() -> None:
    """Print how many, and between which files most."""
    found = counted("curious" if "--curious" in sys.argv else "active")
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    print(f"{found['hops']} hops between {found['files']} files")
    for one, other, times in found["pairs"][:10]:
        print(f"{times:6d}  {one or 'the host'} -> {other}")


if __name__ == "__main__":
    main()
