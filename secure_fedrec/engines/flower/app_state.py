"""What an app keeps in its ``Context`` between rounds: moved by the client's own reveal.

Training follows from it, so a round that came to nothing must leave it as it was: a server could
withhold rounds from some, and the next mean would show what sets the others apart. What training
has left waits under names of its own, beside the state that it began with, and takes that one's
place once the client helps to open the sum (``SiteState.revealed``, of somebody else's loop).
"""

from copy import deepcopy
from typing import Final

from flwr.app import ConfigRecord, RecordDict

from secure_fedrec.errors import ProtocolError

_WAITING: Final = "secure-fedrec.waiting"
_ROUND: Final = "round"


def begun_with(state: RecordDict) -> RecordDict:
    """A copy of the state that a round begins with."""
    return RecordDict(
        {name: deepcopy(record) for name, record in state.items() if not _waits(name)}
    )


def wait(state: RecordDict, left: RecordDict, round_id: bytes) -> None:
    """Keep what training has left until its round is opened; what waited before is dropped.

    Args:
        state: of the context; changed in place, as Flower keeps it.
        left: what the app's own context holds after it.
        round_id: of the round.

    Raises:
        ProtocolError: a record has a name that is kept for this.
    """
    if any(_waits(name) for name in left):
        raise ProtocolError(f"names of an app's records must not begin with {_WAITING!r}")
    _drop(state)
    if not len(state) and not len(left):
        return
    state[_WAITING] = ConfigRecord({_ROUND: round_id})
    for name, record in left.items():
        state[f"{_WAITING}.{name}"] = record


def opened(state: RecordDict, round_id: bytes) -> None:
    """Put what waits for a round in the place of what it began with; what waits for none stays."""
    marked = state.get(_WAITING)
    if not isinstance(marked, ConfigRecord) or marked[_ROUND] != round_id:
        return
    prefix = f"{_WAITING}."
    left = {name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)}
    state.clear()
    for name, record in left.items():
        state[name] = record


def _drop(state: RecordDict) -> None:
    for name in [name for name in state if _waits(name)]:
        del state[name]


def _waits(name: str) -> bool:
    return name == _WAITING or name.startswith(f"{_WAITING}.")
