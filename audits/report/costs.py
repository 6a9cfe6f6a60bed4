"""What a run cost each party, as the report states it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from audits.peak_memory import peak_bytes
from audits.report.claims import executions_of, record_of
from secure_fedrec.core.arrays import BoolArray
from secure_fedrec.engines import RecordedRun
from secure_fedrec.wire import Meter


def cost_json(
    run: RecordedRun,
    *,
    layers: Mapping[str, Any],
    denoisers: Sequence[int],
    seconds: float,
) -> dict[str, Any]:
    """The report's ``cost``.

    Args:
        run: the recorded run.
        layers: settings by layer name, over sums and bags.
        denoisers: client numbers of the denoisers.
        seconds: wall time.
    """
    meter = run.engine.wire.meter
    rounds = max(1, run.completed)
    is_denoiser = np.zeros(run.engine.vault.n_clients, dtype=bool)
    is_denoiser[list(denoisers)] = True
    groups = (("ordinary client", ~is_denoiser), ("denoiser", is_denoiser))
    roles = [_clients(meter, role, who, rounds) for role, who in groups if who.any()]
    vectors = meter.server("vectors_received")
    roles.append(
        _party("server", meter.server, rounds, up="received", down="sent", vectors=vectors)
    )
    if meter.authority("messages_sent"):
        roles.append(_party("authority", meter.authority, rounds, up="sent", down="received"))
    totals = {
        quantity: int(meter.clients(f"{quantity}_sent").sum())
        + meter.server(f"{quantity}_sent")
        + meter.authority(f"{quantity}_sent")
        for quantity in ("bytes", "messages")
    }
    return {
        "roles": roles,
        "total_bytes": totals["bytes"],
        "total_messages": totals["messages"],
        "protocol": _protocol(meter, layers),
        "seconds": seconds,
        "peak_memory_mb": peak_bytes() / 1e6,
        "transcript_bytes": run.transcript.bytes,
    }


def _clients(meter: Meter, role: str, members: BoolArray, rounds: int) -> dict[str, Any]:
    count = int(members.sum())

    def mean(name: str) -> float:
        return float(meter.clients(name)[members].sum()) / count / rounds

    return {
        "role": role,
        "parties": count,
        "messages_per_round": mean("messages_sent"),
        "vectors_per_round": mean("vectors_sent") + mean("vectors_received"),
        "bytes_up_per_round": mean("bytes_sent"),
        "bytes_down_per_round": mean("bytes_received"),
    }


def _party(
    role: str, meter: Callable[[str], int], rounds: int, *, up: str, down: str, vectors: int = 0
) -> dict[str, Any]:
    """All directions are seen from the clients: up is what the server receives."""
    return {
        "role": role,
        "parties": 1,
        "messages_per_round": meter("messages_sent") / rounds,
        "vectors_per_round": vectors / rounds,
        "bytes_up_per_round": meter(f"bytes_{up}") / rounds,
        "bytes_down_per_round": meter(f"bytes_{down}") / rounds,
    }


def _protocol(meter: Meter, layers: Mapping[str, Any]) -> dict[str, Any]:
    """Traffic in addition to uploads and public tables, and how it was determined."""
    executions = executions_of(layers)
    real, simulated = (
        [name for name, execution in executions.items() if execution == kind]
        for kind in ("real", "simulated")
    )
    sizes = "follow from its settings, and are those of a round in which every client answers."
    if real and simulated:
        basis = "measured in part"
        statement = (
            f"Carried out, and every message counted: {', '.join(real)}. Simulated, so that the "
            f"sizes of the messages {sizes[:-1]}: {', '.join(simulated)}."
        )
    elif real:
        basis = "measured"
        statement = "The protocol was carried out, and every message of it counted."
    elif simulated:
        basis = "computed"
        statement = f"The protocol was simulated: the sizes of its messages {sizes}"
    else:
        basis, statement = (
            None,
            "No layer sends anything in addition to uploads and the public table.",
        )
    uncounted = dict.fromkeys(record_of(name).uncounted for name in layers)
    statement = " ".join([statement, *filter(None, uncounted)])
    return {
        "basis": basis,
        "messages": meter.beside("messages"),
        "bytes": meter.beside("bytes"),
        "statement": statement,
    }
