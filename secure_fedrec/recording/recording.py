"""A recorded federation: what its parties saw and, separately, the truth."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from secure_fedrec.errors import TranscriptError
from secure_fedrec.recording.public_facts import form_of
from secure_fedrec.recording.truth_file import TruthColumns, write_truth
from secure_fedrec.recording.validation import checked
from secure_fedrec.wire import BlockStore, Transcript, Truth

AnyPath: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A recorded federation.

    Args:
        transcript: recording of what its parties saw.
        seen: blocks of the transcript.
        hidden: blocks of the truth, round by round.
        secrets: further truth that claims are scored against.
    """

    transcript: Transcript
    seen: BlockStore
    hidden: BlockStore
    secrets: TruthColumns = field(default_factory=TruthColumns)

    def __repr__(self) -> str:
        """Sizes only, without the truth: logs and failing tests print it."""
        return f"Recording({len(self.seen.rounds())} rounds)"

    @classmethod
    def new(cls, public: Mapping[str, Any], directory: Path | None) -> "Recording":
        """An empty one.

        Args:
            public: public knowledge, as JSON values.
            directory: where to write the transcript; None keeps it in memory.

        Raises:
            TranscriptError: the directory holds something already.
        """
        if directory is not None and directory.exists() and any(directory.iterdir()):
            raise TranscriptError(f"{directory} is not empty: give a recording its own folder")
        seen = BlockStore(directory)
        transcript = Transcript(seen, public)
        if directory is not None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            transcript.save_manifest(directory)
        return cls(transcript, seen, BlockStore(None))

    @classmethod
    def open(cls, directory: AnyPath, *, truth: AnyPath | None = None) -> "Recording":
        """Read one from files, which are checked first.

        Args:
            directory: the transcript.
            truth: file of the truth; without it no claim is judged.

        Raises:
            TranscriptError: the files are not a recording, see ``validate``.
        """
        directory = Path(directory)
        _, secrets, hidden = checked(directory, None if truth is None else Path(truth))
        return cls(Transcript.open(directory), BlockStore(directory), hidden, secrets)

    @property
    def truth(self) -> Truth:
        """The truth that no party saw, round by round."""
        return Truth(self.hidden)

    def save(self, directory: AnyPath, *, truth: AnyPath | None = None) -> None:
        """Write transcript and truth.

        Args:
            directory: directory of the transcript; a new or empty folder.
            truth: file of the truth, for its owner alone; None writes none.

        Raises:
            TranscriptError: the directory holds something already, or it states more clients or
                rows than so few bytes can be of (``validation``).
            OSError: something could not be written.
        """
        form_of(self.transcript.public, held=self.seen.bytes)
        copy = Recording.new(self.transcript.public, Path(directory))
        for round_ in self.seen.rounds():
            for kind in self.seen.kinds(round_):
                for columns in self.seen.read(round_, kind):
                    copy.seen.append(round_, kind, columns)
            copy.seen.seal(round_)
        if truth is not None:
            self.save_truth(truth)

    def save_truth(self, path: AnyPath) -> None:
        """Write only the truth.

        Raises:
            OSError: it could not be written.
        """
        write_truth(Path(path), self.secrets, self.hidden)
