"""``init PRESET``: the configurations to start from."""

import argparse
from pathlib import Path

from secure_fedrec.core.files import replace_file
from secure_fedrec.errors import ConfigError

_FOLDER = Path(__file__).parent / "configs"
QUICKSTART = _FOLDER / "quickstart.toml"
"""The configuration that is audited by default."""

PRESETS = tuple(sorted(path.stem for path in _FOLDER.glob("*.toml")))


def preset_file(name: str) -> Path:
    """The file of a preset, one of ``PRESETS``."""
    return _FOLDER / f"{name}.toml"


def init(arguments: argparse.Namespace) -> int:
    """``init PRESET``: a commented configuration to start from."""
    if arguments.preset not in PRESETS:
        problem = "is missing" if arguments.preset is None else "unknown preset"
        raise ConfigError("preset", arguments.preset, problem, PRESETS)
    text = preset_file(arguments.preset).read_text(encoding="utf-8")
    if arguments.out is None:
        print(text, end="")
        return 0
    if arguments.out.exists() and not arguments.force:
        problem = "already exists: name another file, or overwrite it with --force"
        raise ConfigError("--out", str(arguments.out), problem)
    write_asked("--out", arguments.out, text.encode())
    return 0


def write_asked(option: str, target: Path, content: bytes) -> None:
    """Write a file that an option names.

    Raises:
        ConfigError: it cannot be written.
    """
    try:
        replace_file(target, content)
    except OSError as refused:
        problem = f"cannot be written ({refused.strerror})"
        raise ConfigError(option, str(target), problem) from refused
