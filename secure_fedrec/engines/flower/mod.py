"""A mod that protects an existing ClientApp: the server learns a mean, not single updates.

    app = ClientApp(mods=[ProtectedMod(MaskedMean(clip=4.0, max_weight=1000))])

The app trains as before, from what is the same for all clients (``model_records.agreed_message``)
and from its own data. Only masked words of its reply leave this host; a train message that asks for
anything else is refused. Flower runs every message in a process of its own, so what a client has to
remember is kept in its folder, sealed, and never in Flower's ``Context``. State that an app keeps
there affects its training without being agreed on, and a SuperLink chooses which of several such
states comes with a message: against an active server an app must not keep state, unless the terms
allow it.

Replies to other messages (evaluation, queries) would be readable by the server: from a few of them,
a server that chooses the models can learn a client's data exactly. Against an active server they
are refused. Against a curious server they pass, the app's state stays unchanged, and failures are
not reported.
"""

from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

from flwr.app import Context, Message, MetricRecordValues, RecordDict
from flwr.clientapp.typing import ClientAppCallable

from secure_fedrec.engines.distributed.mean_site import Keys, MeanSite
from secure_fedrec.engines.flower.message_bytes import RECORD, is_train
from secure_fedrec.engines.flower.model_records import (
    agreed_message,
    arrays_of,
    metrics_of,
    model_of,
    task_of,
    told_digest,
)
from secure_fedrec.engines.flower.quiet_environment import require_quiet
from secure_fedrec.engines.flower.scrubbed_replies import log, scrubbed, unless_failed
from secure_fedrec.errors import ConfigError, ProtocolError, RefusalError
from secure_fedrec.protection.means import Arrays, ProtectedMean, Update

FOLDER_KEY = "secure-fedrec"
"""Key of a SuperNode's configuration that names the client's folder."""


class ProtectedMod:
    """A mod of a ClientApp, first in its list.

    Args:
        terms: the agreed terms, equal at the server.
        folder: the client's own, see ``distributed.mean_site.Keys``; by default the one that the
            SuperNode's configuration names as "secure-fedrec".
        weight: metric of a train reply that says how much the client counts.
    """

    def __init__(
        self,
        terms: ProtectedMean,
        *,
        folder: str | Path | None = None,
        weight: str = "num-examples",
    ) -> None:
        self._terms = terms
        self._folder = None if folder is None else Path(folder)
        self._weight = weight

    def __call__(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """The reply to a message (``flwr.clientapp.typing.Mod``); nothing is raised."""
        if is_train(message):
            return scrubbed(partial(self._answer, message, context, call_next), message)
        return unless_failed(message, lambda: self._told(message, context, call_next))

    def _told(self, message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        """The app's own reply to what is not a train message, which the server reads.

        Raises:
            ProtocolError: the server is one that may deviate.
        """
        if self._terms.adversary == "active":
            kind = message.metadata.message_type
            raise ProtocolError(
                f"a message of type {kind!r} is not answered: an active server reads this client's "
                'data from such replies. Evaluate at the server, or settle adversary = "curious"'
            )
        return call_next(message, replace(context, state=deepcopy(context.state)))

    def _answer(
        self, message: Message, context: Context, call_next: ClientAppCallable, data: bytes
    ) -> bytes:
        require_quiet()
        own = Context(
            run_id=0,
            node_id=0,
            node_config=context.node_config,
            state=context.state if self._keeps_state else RecordDict(),
            run_config={key: context.run_config[key] for key in sorted(context.run_config)},
        )
        with MeanSite(
            self._terms, Keys(self._place(context)), instructions=told_digest(context.run_config)
        ) as site:
            client, task = site.identity.number, None
            if any(name != RECORD for name in message.content):
                given, own.node_id = agreed_message(message, client), client
                task = task_of(given, lambda sent: self._trained(sent, call_next(given, own), own))
            answer = site.answer(data, task)
        if self._keeps_state:
            context.state = own.state  # an app may have put another in its place
        return answer

    @property
    def _keeps_state(self) -> bool:
        return self._terms.adversary == "curious" or self._terms.keeps_state

    def _trained(self, sent: Arrays, found: Message, own: Context) -> Update:
        """The app's reply to the message that its own strategy has sent.

        Raises:
            RefusalError: it keeps a state that the terms do not have it keep.
            ProtocolError: its reply holds no update.
            EncodingError: an array that is shared is missing, or is not of the model's shape.
        """
        if found.has_error():
            raise ProtocolError("the app answers with an error")
        if len(own.state) and not self._keeps_state:
            raise RefusalError(
                "the app keeps records in Context.state, which an active server could set apart: "
                "keep none, or settle protection.keeps_state = True and read what that costs"
            )
        _, trained = model_of(found.content)
        figures = metrics_of(found)
        weight = self._weight_of(figures)
        metrics = {
            name: float(value)
            for name, value in figures.items()
            if name in self._terms.metrics and isinstance(value, int | float)
        }
        stays = sorted(set(figures) - set(metrics)) + sorted(found.content.config_records)
        if stays:
            log.info("stays on this host: %s", ", ".join(stays))
        return Update(
            arrays=self._terms.select(sent).moved(sent, arrays_of(trained)),
            weight=weight,
            metrics=metrics,
        )

    def _weight_of(self, figures: dict[str, MetricRecordValues]) -> int:
        """The weight of this client; 1 if all have the same."""
        found = figures.pop(self._weight, None)
        if not self._terms.weighted:
            return 1
        if not isinstance(found, int) or isinstance(found, bool):
            raise ProtocolError(f"the reply's metrics have no whole number {self._weight!r}")
        return found

    def _place(self, context: Context) -> Path:
        if self._folder is not None:
            return self._folder
        named = context.node_config.get(FOLDER_KEY)
        if not isinstance(named, str):
            problem = "must name the client's folder: --node-config 'secure-fedrec=\"FOLDER\"'"
            raise ConfigError(f"node-config.{FOLDER_KEY}", None, problem)
        return Path(named)
