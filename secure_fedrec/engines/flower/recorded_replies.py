"""The recorded parts of a Flower federation: models, replies to train messages, metrics.

A server reads the arrays, the weight and the metrics of a reply. A metric is recorded where the
recorder has an array of that name, ``"metrics.train_loss": ()``, and refused otherwise; messages
that a recording cannot hold are refused as well, unless the recorder states that it leaves them
out. So a recording states everything that was read.
"""

from collections.abc import Mapping
from typing import Any

from secure_fedrec.errors import MisfitError
from secure_fedrec.recording import Recorder

METRICS = "metrics."
"""Begins the names of metrics among the arrays of a recorder."""


def whole_model(recorder: Recorder, model: Mapping[str, Any]) -> dict[str, Any]:
    """A model, with zeros for the metrics, which servers do not send.

    Raises:
        MisfitError: an array of it has the name of a metric.
    """
    _require_no_metrics(model)
    told = {n: 0.0 for n in recorder.arrays.shapes if n.startswith(METRICS)}
    return {**model, **told}


def note_upload(
    recorder: Recorder,
    round_: int,
    client: int,
    arrays: Mapping[str, Any],
    metrics: Mapping[str, Any],
    *,
    weighted_by: str,
) -> None:
    """Record a reply to a train message.

    Args:
        recorder: recorder of the arrays of the model, with a weight if replies have one.
        round_: from 1.
        client: the client that replies.
        arrays: arrays of the reply, by name.
        metrics: metrics of all its records.
        weighted_by: the metric that is the weight, where the recorder has one.

    Raises:
        MisfitError: it holds other arrays or metrics than the recorder has, an array with the name
            of a metric, or a weight that is not a finite number above 0.
    """
    _require_no_metrics(arrays)
    by = weighted_by if recorder.arrays.weighted else None
    known = {name.removeprefix(METRICS) for name in recorder.arrays.shapes}
    unknown = [name for name in metrics if name not in known and name != by]
    if unknown:
        names = ", ".join(f"{METRICS}{name}" for name in unknown)
        problem = "the server reads it: name it among the recorder's arrays"
        raise MisfitError(f"{names} is not an array of the recorder; {problem}")
    told = {f"{METRICS}{name}": value for name, value in metrics.items() if name != by}
    weight = None if by is None else metrics.get(by)
    recorder.message(round_, "upload", client, "server", {**arrays, **told}, weight=weight)


def _require_no_metrics(arrays: Mapping[str, Any]) -> None:
    """Refuse arrays that have the name of a metric, since the two could not be told apart.

    Raises:
        MisfitError: an array has the name of a metric.
    """
    for name in arrays:
        if str(name).startswith(METRICS):
            raise MisfitError(f"the array {name} has the name of a metric")


def require_left_out(recorder: Recorder, kind: str) -> None:
    """Refuse replies that a recording cannot hold, unless the recorder leaves them out.

    Args:
        recorder: recorder of the federation.
        kind: type of the replies.

    Raises:
        MisfitError: the recorder does not leave them out.
    """
    if not recorder.leave_out:
        problem = (
            'the server reads them: leave them out by Recorder(leave_out=["metrics of evaluation"])'
        )
        raise MisfitError(f"replies of type {kind!r} are not recorded; {problem}")
