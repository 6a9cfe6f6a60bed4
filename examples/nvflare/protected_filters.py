"""NVFlare filters that keep clients' updates from the server: it learns their weighted mean.

Each side lists its filter for data and for results of its training tasks. A client's result filter
takes the rounds of the masks, by auxiliary messages to the server, before the result leaves: what
leaves is a placeholder, and the server's result filter puts the mean in its place. So any workflow
that takes a weighted mean of updates comes to that mean.
"""

import logging
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

import numpy as np
from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FilterKey, FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply

from secure_fedrec.engines.distributed import Keys, MeanCoordinator, MeanSite, Task
from secure_fedrec.errors import FedRecError
from secure_fedrec.protection.masking import state_hash
from secure_fedrec.protection.means import MaskedMean, Update

TERMS = MaskedMean(clip=16.0, max_weight=10_000, corrupt=0.0, dropout=0.0)
TOPIC, PLACEHOLDER, PATIENCE = "secure-fedrec", "masked", 120.0
Arrays = Mapping[str, np.ndarray]
log = logging.getLogger("secure-fedrec")


def task_of(model: Arrays, compute: Any = None) -> Task:
    """What both sides hold to be computed from a model."""
    digest = sha256(b"nvflare-task|" + state_hash(model)).digest()
    return Task(digest=digest, model=model, compute=compute)


class ClientMean(Filter):
    """A client's filter, of task data and of task results.

    Args:
        folder: with a folder of keys for each site, under its name.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Remember the model; or keep the update, and let its masked words out."""
        if fl_ctx.get_prop(FLContextKey.FILTER_DIRECTION) == FilterKey.IN:
            fl_ctx.set_prop(TOPIC, from_shareable(shareable).data, private=True, sticky=True)
            return shareable
        if shareable.get_return_code() != ReturnCode.OK:
            return make_reply(ReturnCode.EXECUTION_EXCEPTION)
        model, found = fl_ctx.get_prop(TOPIC), from_shareable(shareable)
        moved = found.data
        if found.data_kind == DataKind.WEIGHTS:
            moved = TERMS.select(model).moved(model, found.data)
        weight = int(found.get_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND))
        update = Update(arrays=moved, weight=weight)
        self._take_part(task_of(model, lambda: update), fl_ctx)
        masked = DXO(DataKind.WEIGHT_DIFF, data={PLACEHOLDER: np.zeros(1)})
        masked.set_meta_prop(MetaKey.NUM_STEPS_CURRENT_ROUND, 1)
        return masked.to_shareable()

    def _take_part(self, task: Task, fl_ctx: FLContext) -> None:
        engine, answer = fl_ctx.get_engine(), b""
        with MeanSite(TERMS, Keys(Path(self.folder) / fl_ctx.get_identity_name())) as site:
            while True:
                request = Shareable({"answer": answer})
                replies = engine.send_aux_request("server", TOPIC, request, PATIENCE, fl_ctx)
                message = replies["server"].get("message")
                if not message:
                    return
                try:
                    answer = site.answer(message, task)
                except FedRecError as refused:
                    log.warning("%s", type(refused).__name__)
                    answer = b""


class _Rounds:
    """The server's side of all rounds of a job, shared by its two filters."""

    def __init__(self, folder: str) -> None:
        self.coordinator = MeanCoordinator(TERMS, Keys(Path(folder) / "server"))
        self.model: Arrays = {}
        self.mean: Arrays = {}
        self.failure: FedRecError | None = None
        self.running: Thread | None = None
        self.names: list[str] = []
        self.to: dict[str, Queue[bytes]] = {}
        self.back: Queue[tuple[str, bytes]] = Queue()

    def begin(self, model: Arrays, names: list[str]) -> None:
        """Begin a round, once for all clients that are sent its model."""
        if self.running is not None and all(np.array_equal(model[n], self.model[n]) for n in model):
            return
        self.model, self.names = model, names
        self.to = {name: Queue() for name in names}
        self.running = Thread(target=self._run, daemon=True)
        self.running.start()

    def _run(self) -> None:
        try:
            report = self.coordinator.run_round(self, task_of(self.model), timeout=PATIENCE)
            self.mean = report.mean.arrays  # NVFlare leaves arrays without a difference as they are
        except FedRecError as failure:
            self.failure = failure
        finally:
            for queue in self.to.values():
                queue.put(b"")  # the round is over

    def handle(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """Take a client's answer, and give it the next message when there is one."""
        del topic
        name = fl_ctx.get_peer_context().get_identity_name()
        if request["answer"]:
            self.back.put((name, request["answer"]))
        try:
            message = self.to[name].get(timeout=PATIENCE)
        except Empty:
            message = b""
        return Shareable({"message": message})

    def addresses(self) -> list[int]:
        """Clients of the job (``engines.distributed.Transport``)."""
        return list(range(len(self.names)))

    def exchange(
        self, label: str, messages: Mapping[int, bytes], timeout: float | None
    ) -> Iterator[tuple[int, bytes]]:
        """Hand messages out, and give answers as they come (``Transport``)."""
        del label  # the model went out with the task
        for address, data in messages.items():
            self.to[self.names[address]].put(data)
        for _ in messages:
            try:
                name, answer = self.back.get(timeout=timeout)
            except Empty:
                return
            yield self.names.index(name), answer


_JOBS: dict[str, _Rounds] = {}


class ServerMean(Filter):
    """The server's filter, of task data and of task results.

    Args:
        folder: with the server's folder of keys, ``server``.
    """

    def __init__(self, folder: str) -> None:
        super().__init__()
        self.folder = folder

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Begin a round with a model that goes out; or put the mean in a placeholder's place."""
        engine, job = fl_ctx.get_engine(), fl_ctx.get_job_id()
        if job not in _JOBS:
            _JOBS[job] = _Rounds(self.folder)
            engine.register_aux_message_handler(TOPIC, _JOBS[job].handle)
        rounds = _JOBS[job]
        if fl_ctx.get_prop(FLContextKey.FILTER_DIRECTION) == FilterKey.OUT:
            names = sorted(each.name for each in engine.get_clients())
            rounds.begin(from_shareable(shareable).data, names)
            return shareable
        rounds.running.join(PATIENCE)
        if rounds.failure is not None:
            raise rounds.failure
        found = from_shareable(shareable)
        found.data = dict(rounds.mean)
        return found.update_shareable(shareable)
