"""Replies that do not reveal details of a failure.

Flower would send an exception's text to the server. Here failures stay in this process's log;
errors of other packages are logged by kind and line of code only, because their text may hold data.
"""

import logging
from collections.abc import Callable
from traceback import extract_tb

from flwr.app import Message

from secure_fedrec.engines.distributed.round_log import SPEAKABLE, refusal_fields
from secure_fedrec.engines.flower.message_bytes import data_of, reply_to
from secure_fedrec.errors import (
    CheckpointError,
    ConfigError,
    EncodingError,
    FedRecError,
    HaltedError,
)

Answer = Callable[[bytes], bytes]
"""Handles one message; if it raises any error, there is no answer."""

log = logging.getLogger("secure-fedrec")


def scrubbed(answer: Answer, message: Message) -> Message:
    """The reply to a message, without details of a failure.

    Args:
        answer: handles the bytes.
        message: from the SuperLink.
    """
    data = data_of(message)
    if data is None:
        log.warning("refused: a message without its required field")
        return reply_to(message, None)
    return unless_failed(message, lambda: reply_to(message, answer(data)))


def unless_failed(message: Message, reply: Callable[[], Message]) -> Message:
    """A reply, or the marker for a reply without data where an app answers with an error.

    Args:
        message: the message that is answered.
        reply: makes the reply, of whatever kind, or raises.
    """
    try:
        found = reply()
        if not found.has_error():
            return found
        log.error("failed: the app answers with an error")
    except SPEAKABLE as refusal:
        log.warning("refused: %s", refusal, extra=refusal_fields(refusal))
    except HaltedError as halted:
        log.error("%s", halted, extra=refusal_fields(halted))
    except ConfigError as wrong:
        said = wrong.key, wrong.problem
        log.error("a setting of this host: %s: %s", *said, extra=refusal_fields(wrong))
    except CheckpointError as lost:  # names files of this host, so it stays in the log
        log.error("%s", lost)
    except FedRecError as failure:
        log.error("failed: %s", type(failure).__name__, extra=refusal_fields(failure))
        if isinstance(failure, EncodingError):
            log.error("this client's values do not fit the ring")
    except Exception as failure:
        at = extract_tb(failure.__traceback__)[-1]
        said = type(failure).__name__, at.filename
        log.error("failed: %s at %s:%s", *said, at.lineno, extra=refusal_fields(failure))
    return reply_to(message, None)
