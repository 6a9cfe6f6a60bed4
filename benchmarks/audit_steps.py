"""One audit of generated data, step by step: ``python -m benchmarks.audit_steps CLIENTS ITEMS``.

Prints one JSON object: CPU seconds and peak resident memory of each step. It is the quickstart's
federation, of another size: 30 ratings a client, a quarter of the clients as denoisers, ten rounds.
"""

import json
import resource
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import process_time

from audits.config.audit import AuditConfig, parse_config
from audits.presets import QUICKSTART
from audits.run.audit import attack_all
from audits.run.build import Federation, build_federation, load_dataset
from audits.run.folder import one_writer
from audits.run.training import check_lossless, open_run, train_recorded
from audits.run.truth import ground_truth
from audits.system import Task

_SPARSE = 10

Steps = dict[str, dict[str, float]]


def main(clients: int, items: int) -> None:
    """Run and print it."""
    with tempfile.TemporaryDirectory(prefix="secure-fedrec-") as folder:
        print(json.dumps(steps(sized(clients, items), Path(folder) / "run")))


def sized(clients: int, items: int) -> AuditConfig:
    """The quickstart, of another size."""
    table = tomllib.loads(QUICKSTART.read_text(encoding="utf-8"))
    table["data"] |= {"clients": clients, "items": items}
    table["algorithm"]["rounds"] = 10
    table["recording"]["payload_rounds"] = [5]
    table["protection"][1]["count"] = clients // 4
    if items > _SPARSE * clients:  # with few ratings an item, longer steps diverge
        table["algorithm"]["learning_rate"] = 0.1
    return parse_config(table)


def steps(config: AuditConfig, out: Path) -> Steps:
    """CPU seconds, and GB at the peak, of each step."""
    found: Steps = {}
    with _step(found, "data"):
        dataset = load_dataset(config, None)
        federation = build_federation(config, dataset.task(dataset.folds[0]))
    with one_writer(out, resume=False):
        return found | _held(federation, out)


def _held(federation: Federation[Task], out: Path) -> Steps:
    found: Steps = {}
    config = federation.config
    with _step(found, "training"):
        run = open_run(federation, out, resume=False)
        train_recorded(federation, run, out, progress=False)
    with _step(found, "plain twin"):
        check_lossless(federation, run, progress=False)
    for adversary in config.adversaries:
        with _step(found, f"attacks of {adversary.name}"):
            truth = ground_truth(
                federation.task.secrets(),
                run.truth,
                name=config.data.name,
                denoisers=federation.denoiser_clients,
            )
            attacks = (run.transcript, truth, [adversary], config.attacks)
            attack_all(*attacks, seed=config.seed, bars=False)
    return found


@contextmanager
def _step(found: Steps, name: str) -> Iterator[None]:
    _forget_peak()
    start = process_time()
    yield
    found[name] = {"seconds": round(process_time() - start, 3), "peak_gb": round(_peak_gb(), 3)}


def _forget_peak() -> None:
    """Begin the peak of this process anew, where the system lets it."""
    try:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    except OSError:
        return


def _peak_gb() -> float:
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9
    except (OSError, StopIteration):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
