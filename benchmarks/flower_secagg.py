"""One round of Flower's SecAgg+, metered: the peer of ``masking``.

Flower's own ``SecAggPlusWorkflow`` and ``secaggplus_mod`` run in this process. A stand-in for the
grid hands messages from one to the other, where Flower has a network, and tells whose time it is.
Left out, so at no cost to Flower: transport and message encoding, the training, and the strategy's
mean over clients (after SecAgg+ every client's entry holds the same array).
"""

import copy
import logging
import os
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, Final, cast
from unittest import mock

import flwr
import numpy as np
import numpy.typing as npt
from flwr import app, common
from flwr.client.mod import (
    secaggplus_mod,
)
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS,
    Key,
    Stage,
)
from flwr.compat.common import (
    recorddict_compat,
)
from flwr.server import (
    LegacyContext,
)
from flwr.server.workflow import (
    SecAggPlusWorkflow,
    constant,
)
from flwr.supercore.task_identity import (
    TaskIdentity,
)

from benchmarks.secagg_case import CLIP, MAX_WEIGHT, Case, CpuMeter, Inputs, Peer, RoundCost

__all__ = ["PEER", "flower_round"]

_message: Any = app.Message  # a received one is made of its metadata, which its type does not tell
_SERVER_NODE = 1
_FIRST_NODE = 2
_ROUND = 1
_TOLERANCE = 1e-4  # its quantisation steps are 4e-6 wide, and it rounds at random


def flower_round(case: Case, inputs: Inputs) -> RoundCost:
    """Run a round and check its mean.

    Returns:
        What it cost.

    Raises:
        AssertionError: it halted, or its mean is not that of the survivors.
    """
    _quiet()
    meter = CpuMeter()
    strategy = _Average(case)
    devices = [_Device(number, inputs, meter) for number in range(case.clients)]
    workflow = SecAggPlusWorkflow(
        num_shares=case.neighbours + 1,
        reconstruction_threshold=case.threshold,
        max_weight=float(MAX_WEIGHT),
        clipping_range=CLIP,
    )
    context = _server_context(strategy)
    # Its Shamir sharing starts a thread per processor, which would only wait for one another.
    with mock.patch.object(os, "cpu_count", return_value=1), meter.charge("server"):
        workflow(cast(Any, _Grid(devices, meter)), context)
    _require_mean(strategy.mean, inputs)
    count = len(inputs.survivors)
    return RoundCost(
        client=meter.seconds["survivor"] / count,
        server=meter.seconds["server"],
        upload=sum(devices[number].sent for number in inputs.survivors) / count,
    )


class _Device:
    """A client behind Flower's mod; its training has ended."""

    def __init__(self, number: int, inputs: Inputs, meter: CpuMeter) -> None:
        self.node = _FIRST_NODE + number
        self.drops = number in inputs.dropped
        self.sent = 0
        self._meter = meter
        self._context = _context(self.node)
        self._trained = common.FitRes(
            status=common.Status(code=common.Code.OK, message=""),
            parameters=common.ndarrays_to_parameters([inputs.vectors[number]]),
            num_examples=inputs.weights[number],
            metrics={},
        )

    def answer(self, message: Any) -> Any:
        """The reply to a message of the server, or an error once the client has dropped out."""
        stage = message.content.config_records[RECORD_KEY_CONFIGS][Key.STAGE]
        if self.drops and stage == Stage.COLLECT_MASKED_VECTORS:
            return app.Message(app.Error(code=0, reason="dropped out"), reply_to=message)
        with self._meter.charge("dropped" if self.drops else "survivor"):
            reply = secaggplus_mod(message, self._context, self._fit)
        self.sent += _size(reply.content.config_records[RECORD_KEY_CONFIGS])
        return reply

    def _fit(self, message: Any, _context: Any) -> Any:
        content = recorddict_compat.fitres_to_recorddict(self._trained, keep_input=True)
        return app.Message(content, reply_to=message)


class _Grid:
    """What the workflow asks of a grid: to send messages and bring the replies."""

    def __init__(self, devices: list[_Device], meter: CpuMeter) -> None:
        self._devices = {device.node: device for device in devices}
        self._meter = meter

    def send_and_receive(self, messages: Iterable[Any], *, timeout: float | None = None) -> Any:
        """Deliver copies, as a network would: the mod takes its messages apart."""
        assert timeout is None
        with self._meter.charge("network"):
            return [
                self._devices[message.metadata.dst_node_id].answer(
                    _message(copy.deepcopy(message.content), metadata=message.metadata)
                )
                for message in messages
            ]


class _Average:
    """A strategy that chooses every client and keeps the mean."""

    def __init__(self, case: Case) -> None:
        self.mean: npt.NDArray[Any] | None = None
        self.nodes = range(_FIRST_NODE, _FIRST_NODE + case.clients)

    def configure_fit(self, _round: int, parameters: Any, _manager: Any) -> list[tuple[Any, Any]]:
        """Every client, with nothing to configure."""
        return [
            (SimpleNamespace(node_id=node), common.FitIns(parameters, {})) for node in self.nodes
        ]

    def aggregate_fit(
        self, _round: int, results: Any, failures: Any
    ) -> tuple[None, dict[str, Any]]:
        """Keep what SecAgg+ made of the masked vectors."""
        (self.mean,) = common.parameters_to_ndarrays(results[0][1].parameters)
        return None, {}


def _quiet() -> None:
    logging.getLogger("flwr").setLevel(logging.WARNING)
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, _SERVER_NODE, 1


def _context(node: int) -> Any:
    return app.Context(
        run_id=1, node_id=node, node_config={}, state=app.RecordDict(), run_config={}
    )


def _server_context(strategy: _Average) -> Any:
    manager = SimpleNamespace(num_available=lambda: len(strategy.nodes))
    stood_in: dict[str, Any] = {"strategy": strategy, "client_manager": manager}
    context = LegacyContext(_context(_SERVER_NODE), **stood_in)
    # A model of one number: what Flower sends to its clients is not what is compared.
    model = common.ndarrays_to_parameters([np.zeros(1, dtype=np.float32)])
    context.state.array_records[constant.MAIN_PARAMS_RECORD] = (
        recorddict_compat.parameters_to_arrayrecord(model, keep_input=True)
    )
    context.state.config_records[constant.MAIN_CONFIGS_RECORD] = app.ConfigRecord(
        {constant.Key.CURRENT_ROUND: _ROUND}
    )
    return context


def _size(record: Any) -> int:
    """Bytes of keys, shares and vectors in a reply; Flower's own framing comes on top."""
    return sum(
        len(value)
        for values in record.values()
        for value in (values if isinstance(values, list) else [values])
        if isinstance(value, bytes)
    )


def _require_mean(found: npt.NDArray[Any] | None, inputs: Inputs) -> None:
    assert found is not None, "Flower halted the round"
    total = np.zeros(len(found))
    for number in inputs.survivors:
        total += np.float64(inputs.weights[number]) * inputs.vectors[number]
    total /= sum(inputs.weights[number] for number in inputs.survivors)
    assert np.max(np.abs(found - total)) < _TOLERANCE


PEER: Final = Peer(round=flower_round, version=flwr.__version__)
"""Flower as it is installed."""
