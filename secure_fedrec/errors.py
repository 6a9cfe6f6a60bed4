"""The hierarchy of errors that the toolkit raises.

FedRecError
├── ConfigError             a setting is wrong: names key, value, problem and choices
│   ├── SumBudgetError      a sum of the cohort could leave the fixed-point ring
│   └── DivergedError       training left the range of numbers with every setting that was tried
├── DataError               a file is missing, damaged or outside its rating scale
├── EncodingError           a value cannot be encoded: NaN, infinite or out of range
│   └── MisfitError         the same, of an array, in words that the server may be told
├── WireError               a message the wire must not carry, or a malformed block
├── PrivateStateError       private state was asked to leave its vault
├── TranscriptError         a transcript is damaged, or a view is asked for what it may not see
│   └── UnstatedFactError   the public knowledge of a transcript does not state a fact
├── CheckpointError         a checkpoint is damaged or belongs to another run
├── HostError               a process on this host, or the way to another one, is not there
├── ProtocolError           a message arrived in a state that does not accept it
│   └── RefusalError        the same, in words that the server may be told
│       └── SitsOutError    a client takes no part in a round, for reasons of its own
├── LosslessnessError       a protected run and its plain twin differ
├── MissingExtraError       a package that an extra brings is not installed; an ImportError too
└── SplitPersonalizationError  private parameters of a model cannot stay home

The command line maps errors that the user can correct (``ConfigError``, ``DataError``,
``EncodingError``, ``CheckpointError``, ``TranscriptError``, ``MissingExtraError``, ``HostError``)
to exit code 2, and all others to exit code 4.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec  # noqa: TID251 - finds, imports nothing
from pathlib import Path
from types import MappingProxyType
from typing import Final

__all__ = [
    "MISSING",
    "NOT_STATED",
    "CheckpointError",
    "ConfigError",
    "DataError",
    "DivergedError",
    "EncodingError",
    "FedRecError",
    "HostError",
    "LosslessnessError",
    "MisfitError",
    "MissingExtraError",
    "PrivateStateError",
    "ProtocolError",
    "RefusalError",
    "SitsOutError",
    "SplitPersonalizationError",
    "SumBudgetError",
    "TranscriptError",
    "UnstatedFactError",
    "WireError",
    "brought_by",
    "entry",
    "renamed_keys",
]

_NONE: Mapping[str, str] = MappingProxyType({})

MISSING: Final = object()
"""Value of a setting that was not given."""

NOT_STATED: Final = "does not state"
"""Part of the message where a fact of the public knowledge is missing."""

_PROJECTS: Mapping[str, str] = MappingProxyType(
    {"prometheus_client": "prometheus-client", "sklearn": "scikit-learn"}
)
"""Names of packages by that of their module, where they are not the same."""


_MANY = 8
"""Number of choices from which on the message names the one closest to a misspelt one."""


class FedRecError(Exception):
    """Root of every error raised on purpose by this toolkit."""


class ConfigError(FedRecError, ValueError):
    """A setting is wrong.

    Packages that are used alone name their own settings (``dp.clip``, ``routing.kem``); where a
    user's settings are handed to one, ``renamed`` gives its refusal the key that the user wrote.

    Args:
        key: dotted path of the offending key, e.g. ``"protection.rho"``.
        value: the given value; ``MISSING`` or None if none was given, and then not shown.
        problem: what is wrong with it, as a clause ("must be at least 0").
        choices: the allowed values, where they can be listed.
        related: keys of other settings that the clause mentions, by the name that it has in braces
            for each: ``"must exceed {corrupt}"`` goes with ``{"corrupt": "dp.corrupt"}``. Without
            any, braces have no meaning.

    Attributes:
        problem: the clause as it reads, with the related keys filled in.
        entry: number from 0 of the table that the key stands in, where it is one of a list of
            tables; None where it is not, or is unknown.
    """

    entry: int | None = None

    def __init__(
        self,
        key: str,
        value: object,
        problem: str,
        choices: Iterable[object] | None = None,
        *,
        related: Mapping[str, str] = _NONE,
    ) -> None:
        self.key = key
        self.value = value
        self.problem = problem.format_map(related) if related else problem
        self.choices = None if choices is None else tuple(choices)
        self.related = dict(related)
        self._clause = problem
        # None cannot be written in a file.
        given = "" if value is MISSING or value is None else f" = {value!r}"
        text = f"{key}{given}: {self.problem}"
        if self.choices is not None:
            text += (
                f" (choices: {', '.join(str(choice) for choice in self.choices)}){self._meant()}"
            )
        super().__init__(text)

    def _meant(self) -> str:
        """A clause with the most similar of many choices; empty if none is similar."""
        if not isinstance(self.value, str) or len(self.choices or ()) < _MANY:
            return ""
        from difflib import get_close_matches  # noqa: PLC0415 - nothing else needs it

        close = get_close_matches(self.value, map(str, self.choices or ()), n=1, cutoff=0.75)
        return f"; is {close[0]!r} meant?" if close else ""

    def renamed(
        self,
        keys: Mapping[str, str],
        *,
        values: Mapping[str, object] = _NONE,
        prefix: str = "",
    ) -> "ConfigError":
        """The same refusal, of the same class, under other keys.

        Args:
            keys: new path by old one, of a setting or of a table of them: ``{"gum": "model.gum"}``
                renames ``gum.hidden``. The longest path that fits counts. It applies to the
                refusal's own key and to the related ones.
            values: by new key, what the user wrote where that is not the value that was refused.
            prefix: put before the clause.
        """
        key = _renamed(self.key, keys)
        related = {name: _renamed(each, keys) for name, each in self.related.items()}
        value, clause = values.get(key, self.value), prefix + self._clause
        return type(self)(key, value, clause, self.choices, related=related)

    def at(self, place: str) -> None:
        """Add the place of the setting, a file and its line, to the refusal."""
        self.args = (f"{self} [{place}]",)


@contextmanager
def entry(number: int) -> Iterator[None]:
    """Add to a refusal raised inside the number of its table in a list of tables.

    Raises:
        ConfigError: as the code inside does.
    """
    try:
        yield
    except ConfigError as refused:
        refused.entry = number
        raise


@contextmanager
def renamed_keys(keys: Mapping[str, str], values: Mapping[str, object] = _NONE) -> Iterator[None]:
    """Raise a refusal from inside under other keys; see ``ConfigError.renamed``.

    Raises:
        ConfigError: as the code inside does, of the same class.
    """
    try:
        yield
    except ConfigError as refused:
        raise refused.renamed(keys, values=values) from None


def _renamed(path: str, keys: Mapping[str, str]) -> str:
    """A path whose longest known prefix of whole steps is replaced."""
    known = path
    while known and known not in keys:
        known = known.rpartition(".")[0]
    return keys[known] + path[len(known) :] if known else path


class MissingExtraError(FedRecError, ModuleNotFoundError):
    """A package that an extra of this distribution brings is not installed.

    Args:
        package: as it is imported.
        extra: the extra that installs it.
        needed_by: the setting or function that needs it; "" where the caller knows it.
    """

    def __init__(self, package: str, extra: str, needed_by: str = "") -> None:
        self.package, self.extra = package, extra
        project = _PROJECTS.get(package, package)
        lacking = f"{needed_by} needs {project}, which" if needed_by else project
        super().__init__(
            f"{lacking} is not installed; pip install 'secure-fedrec[{extra}]' installs it",
            name=package,
        )


@contextmanager
def brought_by(extra: str, needed_by: str = "") -> Iterator[None]:
    """A context in which packages of an extra are imported; see ``MissingExtraError``.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as absent:
        raise MissingExtraError(str(absent.name), extra, needed_by) from absent


def require_installed(package: str, extra: str, needed_by: str = "") -> None:
    """Check that a package is installed that takes long to import and is imported later.

    Raises:
        MissingExtraError: it is not installed.
    """
    with brought_by(extra, needed_by):
        if find_spec(package) is None:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)


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


class UnstatedFactError(TranscriptError):
    """The public knowledge of a transcript does not state a fact; nothing stands in for it."""


class CheckpointError(FedRecError):
    """A checkpoint is damaged, or was written by a run with another configuration."""


class HaltedError(FedRecError):
    """Computing on a client's own data has failed, so it takes no further part."""


class HostError(FedRecError):
    """A process on this host, or the connection to another host, is missing."""


class ProtocolError(FedRecError):
    """A message arrived in a state that does not accept it."""


class RefusalError(ProtocolError):
    """A message is refused because of the server's messages or settings, never of data.

    A client's host tells the server so, in these words.
    """


class MisfitError(EncodingError, RefusalError):
    """An array does not fit the agreed terms; the text has its name, shape or bound."""


class SitsOutError(RefusalError):
    """A client takes no part in a round, and may in the next; the words do not say why."""


class LosslessnessError(FedRecError, AssertionError):
    """A protected run and its plain twin differ; the message names the first differing place."""


class SplitPersonalizationError(FedRecError, AssertionError):
    """Private parameters cannot stay home; the message says what crosses between which users."""
