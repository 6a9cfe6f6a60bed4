"""A recording that lists its messages but raises an error if one is read."""

from collections.abc import Iterator

from secure_fedrec.wire.recording import BlockStore
from secure_fedrec.wire.spool import Columns


class MessageAskedError(Exception):
    """A message of a closed recording was read."""


class ClosedBlocks(BlockStore):
    """The rounds, kinds and column names of another store.

    Args:
        store: the other.
    """

    def __init__(self, store: BlockStore) -> None:
        super().__init__(None)
        self._store = store

    def rounds(self) -> tuple[int, ...]:
        """Completed rounds, ascending."""
        return self._store.rounds()

    def kinds(self, round_: int) -> tuple[str, ...]:
        """Names under which blocks of a round are stored, ascending."""
        return self._store.kinds(round_)

    def names(self, round_: int, name: str) -> list[tuple[str, ...]]:
        """Column names of each block of one step of one round."""
        return self._store.names(round_, name)

    def read(self, round_: int, name: str) -> Iterator[Columns]:
        """Nothing.

        Raises:
            MessageAskedError: always.
        """
        raise MessageAskedError(f"{name} of round {round_}")
