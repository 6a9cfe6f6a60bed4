"""The seal of a recording: which files belong to it, and the digest of each.

A recording grows by one folder per round, and its seal with it: ``recording.json`` names every file
of ``transcript/`` and ``truth/`` that a run has completed. It is written before the checkpoint of
the same rounds, so it always covers the checkpoint's rounds; later rounds are dropped on resume.
Neither protects against the owner of the folder: they detect files that were lost, truncated, mixed
up or edited by mistake.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from secure_fedrec.core.files import file_digest, read_json, replace_file
from secure_fedrec.errors import TranscriptError
from secure_fedrec.wire.recording import round_number

SEAL = "recording.json"
_MANIFEST = "transcript/transcript.json"
_STORES = ("transcript", "truth")


class RecordingSeal:
    """Digests of the recorded files of a run.

    Args:
        directory: run folder.
        files: path in the folder -> SHA-256, of what is sealed already.
        rounds: completed rounds that these files are of.
    """

    def __init__(self, directory: Path, files: Mapping[str, str], *, rounds: int) -> None:
        self._directory = directory
        self._files = dict(files)
        self.rounds = rounds

    @classmethod
    def read(cls, directory: Path) -> "RecordingSeal":
        """The seal of a run folder.

        Raises:
            TranscriptError: it is missing or damaged.
        """
        path = directory / SEAL
        try:
            content = read_json(path)
            rounds, files = content["rounds"], content["files"]
            if not isinstance(rounds, int) or not isinstance(files, dict):
                raise TypeError("of another kind")
        except FileNotFoundError as absent:
            problem = "is missing: it lists the files of the recording"
            raise TranscriptError(f"{path} {problem}") from absent
        except (OSError, ValueError, KeyError, TypeError) as damage:
            raise TranscriptError(f"{path} is damaged") from damage
        return cls(directory, {str(name): str(d) for name, d in files.items()}, rounds=rounds)

    def extend(self, rounds: int) -> None:
        """Add the files recorded up to a completed round, and write the seal.

        Raises:
            OSError: it could not be written; the old one is unchanged.
        """
        for name, round_ in _recorded(self._directory):
            known = name in self._files and name != _MANIFEST
            if round_ <= rounds and not known:
                self._files[name] = file_digest(self._directory / name)
        self.rounds = rounds
        content = {"rounds": rounds, "files": dict(sorted(self._files.items()))}
        text = json.dumps(content, indent=1) + "\n"
        replace_file(self._directory / SEAL, text.encode(), durable=True)

    def cut(self, rounds: int) -> None:
        """Remove records of later rounds.

        Raises:
            TranscriptError: the seal does not reach that round.
        """
        if self.rounds < rounds:
            path = self._directory / SEAL
            raise TranscriptError(f"{path} knows {self.rounds} of {rounds} completed rounds")
        self._files = {name: d for name, d in self._files.items() if _round_of(name) <= rounds}
        self.rounds = rounds

    def require_intact(self, *, manifest: bool = True) -> None:
        """Compare the files of the sealed rounds with their digests.

        Args:
            manifest: compare ``transcript.json`` as well, which a resumed run writes anew.

        Raises:
            TranscriptError: a file is missing, damaged, or does not belong; names it.
        """
        for round_ in range(1, self.rounds + 1):
            folder = self._directory / "transcript" / "rounds" / f"{round_:06d}"
            if not folder.is_dir():
                raise TranscriptError(f"{folder} is missing from the recording")
        found = {name for name, round_ in _recorded(self._directory) if round_ <= self.rounds}
        for name in sorted(self._files.keys() | found):
            path = self._directory / name
            if name not in found:
                raise TranscriptError(f"{path} is missing from the recording")
            if name not in self._files:
                raise TranscriptError(f"{path} does not belong to the recording")
            if name == _MANIFEST and not manifest:
                continue
            try:
                same = file_digest(path) == self._files[name]
            except OSError as damage:
                raise TranscriptError(f"{path} cannot be read ({damage.strerror})") from damage
            if not same:
                where = f" of round {round_}" if (round_ := _round_of(name)) else ""
                raise TranscriptError(f"{path}{where} is damaged: it is not what the run recorded")


def require_complete(directory: Path, rounds: int) -> None:
    """Refuse a recording that is not complete.

    Args:
        directory: run folder.
        rounds: that the run was configured to have.

    Raises:
        TranscriptError: rounds are missing, or a file is missing, damaged or does not belong.
    """
    seal = RecordingSeal.read(directory)
    if seal.rounds != rounds:
        raise TranscriptError(
            f"{directory} holds {seal.rounds} of {rounds} rounds: continue the run with --resume"
        )
    seal.require_intact()
    beyond = [name for name, round_ in _recorded(directory) if round_ > rounds]
    if beyond:
        raise TranscriptError(f"{directory / beyond[0]} does not belong to the recording")


def _recorded(directory: Path) -> Iterator[tuple[str, int]]:
    """Finished files of a recording and their rounds, 0 without a round, sorted."""
    for store in _STORES:
        for path in sorted((directory / store).rglob("*")):
            name = path.relative_to(directory)
            unfinished = any(part.endswith(".part") for part in name.parts)
            if not path.is_dir() and not unfinished:
                yield name.as_posix(), _round_of(name.as_posix())


def _round_of(name: str) -> int:
    parts = name.split("/")
    within = len(parts) > 3 and parts[1] == "rounds"
    return (round_number(parts[2]) or 0) if within else 0
