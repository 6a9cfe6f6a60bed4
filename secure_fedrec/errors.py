"""Every error the toolkit raises on purpose, as one tree.

FedRecError
├── ConfigError             a setting is wrong: names key, value, problem and choices
│   ├── SumBudgetError      a sum of the cohort could leave the fixed-point ring
│   └── DivergedError       training left the range of numbers with every setting that was tried
├── DataError               a file is missing, damaged or outside its rating scale
├── EncodingError           a value cannot be encoded: NaN, infinite or out of range
├── WireError               a message the wire must not carry, or a malformed block
├── PrivateStateError       private state was asked to leave its vault
├── TranscriptError         a transcript is damaged, or a view is asked for what it may not see
├── CheckpointError         a checkpoint is damaged or belongs to another run
├── ProtocolError           a message arrived in a state that does not accept it
├── LosslessnessError       a protected run and its plain twin differ
└── SplitPersonalizationError  private parameters of a model cannot stay home

The command line maps what the user can mend (``ConfigError``, ``DataError``, ``EncodingError``,
``CheckpointError``, ``TranscriptError``) to exit code 2, and all else that is not a verdict to
exit code 4.
"""

from collections.abc import Iterable
from pathlib import Path

__all__ = [
    "CheckpointError",
    "ConfigError",
    "DataError",
    "DivergedError",
    "EncodingError",
    "FedRecError",
    "LosslessnessError",
    "PrivateStateError",
    "ProtocolError",
    "SplitPersonalizationError",
    "SumBudgetError",
    "TranscriptError",
    "WireError",
]


class FedRecError(Exception):
    """Root of every error raised on purpose by this toolkit."""


class ConfigError(FedRecError, ValueError):
    """A setting is wrong.

    Args:
        key: dotted path of the offending key, e.g. ``"protection.rho"``.
        value: what was given.
        problem: what is wrong with it, as a clause ("must be at least 0").
        choices: the allowed values, where they can be listed.
    """

    def __init__(
        self, key: str, value: object, problem: str, choices: Iterable[object] | None = None
    ) -> None:
        self.key = key
        self.value = value
        self.problem = problem
        self.choices = None if choices is None else tuple(choices)
        text = f"{key} = {value!r}: {problem}"
        if self.choices is not None:
            text += f" (choices: {', '.join(str(choice) for choice in self.choices)})"
        super().__init__(text)


class SumBudgetError(ConfigError):
    """A sum over the cohort could leave the fixed-point ring; the message names the fix."""


class DivergedError(ConfigError):
    """Training left the range of numbers with every setting that was tried."""


class DataError(FedRecError, ValueError):
    """A data file is missing, damaged, or holds a value outside its declared scale.

    Args:
        path: the offending file or folder.
        problem: what is wrong, as a clause.
        line: 1-based line number, where one line is to blame.
    """

    def __init__(self, path: str | Path, problem: str, *, line: int | None = None) -> None:
        self.path = str(path)
        self.problem = problem
        self.line = line
        where = self.path if line is None else f"{self.path}, line {line}"
        super().__init__(f"{where}: {problem}")


class EncodingError(FedRecError, ValueError):
    """A value cannot become a ring element: NaN, infinite, or larger than the stated clip."""


class WireError(FedRecError, ValueError):
    """A message that the wire must not carry, or a block whose columns do not fit together."""


class PrivateStateError(FedRecError, TypeError):
    """Private state was asked to leave its vault (to be pickled, copied, printed or sent)."""


class TranscriptError(FedRecError):
    """A transcript is damaged, or a view was asked for something its adversary did not see."""


class CheckpointError(FedRecError):
    """A checkpoint is damaged, or was written by a run with another configuration."""


class ProtocolError(FedRecError):
    """A message arrived in a state that does not accept it."""


class LosslessnessError(FedRecError, AssertionError):
    """A protected run and its plain twin differ; the message names the first differing place."""


class SplitPersonalizationError(FedRecError, AssertionError):
    """Private parameters cannot stay home; the message says what crosses between which users."""
