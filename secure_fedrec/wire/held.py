"""A finished recording that is read repeatedly: its files are listed and read once."""

from collections import defaultdict
from functools import partial
from pathlib import Path

from secure_fedrec.core.bounded import Bounded
from secure_fedrec.core.npz import npz_names, read_npz
from secure_fedrec.wire.recording import BlockStore, folder_of, name_and_number
from secure_fedrec.wire.spool import Columns

_LIMIT = 256 * 2**20


class HeldBlocks(BlockStore):
    """The blocks of a folder that is no longer written to.

    An audit asks the same blocks again for every attack and adversary. Here the folder is listed
    once, and the blocks read last are kept, read-only, in a bounded memory.

    Args:
        directory: directory of the recording.
        limit: bytes of columns that are kept.
    """

    def __init__(self, directory: Path, limit: int = _LIMIT) -> None:
        super().__init__(directory)
        self._folder = directory
        self._listed: dict[int, dict[str, list[Path]]] = {}
        self._columns: dict[Path, tuple[str, ...]] = {}
        self._held: Bounded[Columns] = Bounded(limit, _size)
        self._rounds: tuple[int, ...] | None = None

    def rounds(self) -> tuple[int, ...]:
        """Completed rounds, ascending."""
        if self._rounds is None:
            self._rounds = super().rounds()
        return self._rounds

    def kinds(self, round_: int) -> tuple[str, ...]:
        """Names under which blocks of a round are stored, ascending."""
        return tuple(sorted(self._of_round(round_)))

    def _names_in(self, file: Path) -> tuple[str, ...]:
        if file not in self._columns:
            self._columns[file] = npz_names(file)
        return self._columns[file]

    def _columns_in(self, file: Path) -> Columns:
        return dict(self._held.get(file, partial(_read, file)))

    def _files(self, round_: int, name: str) -> list[Path]:
        return self._of_round(round_).get(name, [])

    def _of_round(self, round_: int) -> dict[str, list[Path]]:
        """Files of a round by the name of what they hold, in the order written."""
        if round_ not in self._listed:
            files = folder_of(self._folder, round_, sealed=True).glob("*.npz")
            found: dict[str, list[Path]] = defaultdict(list)
            for file in sorted(files, key=lambda file: name_and_number(file)[1]):
                found[name_and_number(file)[0]].append(file)
            self._listed[round_] = dict(found)
        return self._listed[round_]


def _read(file: Path) -> Columns:
    columns = read_npz(file)
    for column in columns.values():
        column.setflags(write=False)
    return columns


def _size(columns: Columns) -> int:
    return sum(column.nbytes for column in columns.values())


def held(store: BlockStore) -> BlockStore:
    """The same blocks kept in memory, for repeated reading of a finished recording."""
    folder = store.directory
    return store if folder is None or isinstance(store, HeldBlocks) else HeldBlocks(folder)
