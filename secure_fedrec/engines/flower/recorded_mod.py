"""A mod that records a client's incoming and outgoing messages, if the strategy cannot be wrapped.

    app = ClientApp(mods=[RecordedMod("pieces")])  # first in the list: what leaves the client

and, once the run is over and the folders of all clients are at hand:

    recorder = Recorder(n_clients=10, arrays=..., weighted=True, send_models=True, sums=...)
    nodes = join_pieces("pieces", recorder)
    recording = recorder.close()

Flower runs clients in separate processes, so no single client can write a recording. Each writes
pieces into a folder of its own inside the one that is named (``recorded_pieces``), and they are
joined where the folders of all clients are at hand. Messages and replies pass unchanged. Replies
that did not reach the server are recorded in a piece as well. The folders hold updates in clear, so
only their owner should read them.
"""

from pathlib import Path
from typing import Any

from flwr.app import Context, Message
from flwr.clientapp.typing import ClientAppCallable

from secure_fedrec.engines.flower.message_bytes import is_train
from secure_fedrec.engines.flower.model_records import arrays_of, metrics_of, model_of
from secure_fedrec.engines.flower.recorded_pieces import (
    Piece,
    folder_of,
    join_pieces,
    keep_model,
    keep_piece,
)
from secure_fedrec.errors import ConfigError

__all__ = ["FOLDER_KEY", "Piece", "RecordedMod", "join_pieces"]

FOLDER_KEY = "secure-fedrec-pieces"
"""Key of a SuperNode's configuration that names the folder."""


class RecordedMod:
    """A mod of a ClientApp, first in its list.

    Args:
        folder: for the pieces; by default the one that the SuperNode's configuration names as
            "secure-fedrec-pieces". Clients of one host may share it.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = None if folder is None else Path(folder)

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """The app's own reply to a message (``flwr.clientapp.typing.Mod``), after it was recorded.

        Raises:
            ConfigError: no folder is named.
            ProtocolError: a train message, or the reply to one, has not one record of arrays.
            OSError: the piece cannot be written.
        """
        folder, model = folder_of(self._place(context), context.node_id), ""
        if is_train(message) or len(message.content.array_records) == 1:
            # Recorded before the app runs, since the app may change its input.
            model = keep_model(folder, arrays_of(model_of(message.content)[1]))
        reply = call_next(message, context)
        arrays: dict[str, Any] = {}
        metrics: dict[str, Any] = {}
        replied = bool(reply.has_content())
        if replied and is_train(message):
            arrays, metrics = arrays_of(model_of(reply.content)[1]), metrics_of(reply)
        partition = context.node_config.get("partition-id", -1)
        piece = Piece(
            run=context.run_id,
            node=context.node_id,
            partition=partition if isinstance(partition, int) else -1,
            round=_round_of(message),
            kind=message.metadata.message_type,
            model=model,
            replied=replied,
            names=tuple(arrays),
            metrics=metrics,
        )
        keep_piece(folder, piece, arrays.values())
        return reply

    def _place(self, context: Context) -> Path:
        if self._folder is not None:
            return self._folder
        named = context.node_config.get(FOLDER_KEY)
        if not isinstance(named, str):
            problem = f"must name a folder: --node-config '{FOLDER_KEY}=\"FOLDER\"'"
            raise ConfigError(f"node-config.{FOLDER_KEY}", None, problem)
        return Path(named)


def _round_of(message: Message) -> int:
    """The round that a message names; 0 if it does not."""
    for record in message.content.config_records.values():
        named = record.get("server-round")
        if isinstance(named, int):
            return named
    group = message.metadata.group_id
    return int(group) if group.isascii() and group.isdigit() else 0
