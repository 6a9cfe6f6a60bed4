"""A site's process: fetches its SuperNode's tasks and answers them with the site's own code.

Details of failures stay here (``scrubbed_replies``). No app that the SuperLink names is installed,
loaded or run.
"""

import time
from collections.abc import Callable, Mapping

import httpx
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import RuntimeTokenHttpInterceptor
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from secure_fedrec.engines.flower.message_bytes import reply_to
from secure_fedrec.engines.flower.quiet_environment import require_quiet
from secure_fedrec.engines.flower.runtime_client import runtime_client, token_of_next
from secure_fedrec.engines.flower.scrubbed_replies import log, unless_failed

_COMPLETED = "completed"
_TRIES = 3

Reply = Callable[[Message, Context], Message]
"""Makes the reply to a message; it must not raise."""


def serve(
    reply: Reply,
    address: str,
    *,
    alive: Callable[[], bool],
    heard: Callable[[], None] = lambda: None,
    every: float = 0.1,
) -> None:
    """Answer a SuperNode's tasks as long as it is there.

    Args:
        reply: to any message.
        address: host and port of the SuperNode's own API, on this host.
        alive: whether to go on.
        heard: called whenever the SuperNode has said whether there is a task.
        every: seconds between two checks for a task.

    Raises:
        ConfigError: Flower would contact hosts of its maker.
    """
    require_quiet()
    with runtime_client(address, "SuperExec", tries=_TRIES) as tasks:
        while alive():
            try:
                token = token_of_next(tasks, TaskType.CLIENT_APP)
                heard()
            except httpx.HTTPError:  # the SuperNode is starting or stopping
                token = None
            if token is None:
                time.sleep(every)
            else:
                _serve_one(reply, address, token)


def handled(replies: Mapping[str, Reply], message: Message, context: Context) -> Message:
    """The reply to a message; the reply to an unknown kind is empty."""
    reply = replies.get(message.metadata.message_type)
    if reply is None:
        log.warning("refused: the message is not of a known kind")
        return reply_to(message, None)
    return reply(message, context)


def serve_app(app: ClientApp, address: str, *, alive: Callable[[], bool] = lambda: True) -> None:
    """Run an app that is installed here instead of the one that the SuperLink sends.

    A SuperNode that is started with ``--isolation process`` leaves its tasks to this process. The
    app's ``Context`` is kept as by Flower; exceptions are not reported to the server.

    Args:
        app: app of this host's own.
        address: host and port of the SuperNode's own API, on this host.
        alive: whether to go on.

    Raises:
        ConfigError: Flower would contact hosts of its maker.
    """

    def reply(message: Message, context: Context) -> Message:
        return unless_failed(message, lambda: app(message, context))

    serve(reply, address, alive=alive)


def _serve_one(reply: Reply, address: str, token: str) -> None:
    shown = RuntimeTokenHttpInterceptor(token)
    with runtime_client(address, "flwr-clientapp", shown, tries=_TRIES) as own:
        beats = HeartbeatSender(make_task_heartbeat_fn_http(own))
        beats.start()
        try:
            message, context, _, _ = pull_task_input(own)  # the app that comes with it is not used
            push_message(own, reply(message, context), context)
            push_task_output(own, context, _COMPLETED, "")
        except httpx.HTTPError as failure:
            log.error("the SuperNode is not reached: %s", type(failure).__name__)
        finally:
            if beats.is_running:
                beats.stop()
