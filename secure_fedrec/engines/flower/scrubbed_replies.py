"""Replies in which nothing of a failure is told.

Flower would send an exception's text to the server. Whatever goes wrong stays in this process's
log, and of errors that are not this package's own only the kind and the line of code, because a
text may hold data.
"""

import logging
from collections.abc import Callable
from traceback import extract_tb

from flwr.app import Message

from secure_fedrec.engines.flower.message_bytes import data_of, reply_to
from secure_fedrec.errors import (
    ConfigError,
    EncodingError,
    FedRecError,
    HaltedError,
    ProtocolError,
    WireError,
)

_SPEAKABLE = (ProtocolError, WireError)
"""Errors whose text is about messages, and holds nothing of a client's data."""

Answer = Callable[[bytes], bytes]
"""Handles one message; whatever it raises, there is no answer."""

log = logging.getLogger("secure-fedrec")


def scrubbed(answer: Answer, message: Message) -> Message:
    """The reply to a message, in which nothing of a failure is told.

    Args:
        answer: handles the bytes.
        message: from the SuperLink.
    """
    data = data_of(message)
    if data is None:
        log.warning("refused: a message without the one field that it is to have")
        return reply_to(message, None)
    return unless_failed(message, lambda: reply_to(message, answer(data)))


def unless_failed(message: Message, reply: Callable[[], Message]) -> Message:
    """A reply, or one that says that there is none, as where an app answers with an error.

    Args:
        message: what is replied to.
        reply: makes the reply, of whatever kind, or raises.
    """
    try:
        found = reply()
        if not found.has_error():
            return found
        log.error("failed: the app answers with an error")
    except _SPEAKABLE as refusal:
        log.warning("refused: %s", refusal)
    except HaltedError as halted:
        log.error("%s", halted)
    except ConfigError as wrong:
        log.error("a setting of this host: %s: %s", wrong.key, wrong.problem)
    except FedRecError as failure:
        log.error("failed: %s", type(failure).__name__)
        if isinstance(failure, EncodingError):
            log.error("this client's values do not fit the ring")
    except Exception as failure:
        at = extract_tb(failure.__traceback__)[-1]
        log.error("failed: %s at %s:%s", type(failure).__name__, at.filename, at.lineno)
    return reply_to(message, None)
