"""Commands on recordings made elsewhere: what is asked of them, and whether they are one."""

import argparse

from audits.config.judged import RecordingConfig, parse_recording_config, read_tables
from audits.config.lines import locate
from audits.run.folder import CONFIG_NAME
from audits.terminal import print_json
from secure_fedrec.errors import ConfigError
from secure_fedrec.recording import validate
from secure_fedrec.recording.truth_file import read_truth


def is_foreign(arguments: argparse.Namespace) -> bool:
    """Whether ``attack`` is meant for a recording made elsewhere.

    Raises:
        ConfigError: an option for such a recording stands beside the transcript of a run.
    """
    asked = [name for name in ("truth", "gates", "out") if getattr(arguments, name) is not None]
    of_run = (arguments.transcript.parent / CONFIG_NAME).exists()
    if asked and of_run:
        problem = "is for recordings made elsewhere; a run is judged by its own configuration"
        raise ConfigError(f"--{asked[0]}", str(getattr(arguments, asked[0])), problem)
    return bool(asked)


def config_of(arguments: argparse.Namespace) -> RecordingConfig:
    """What ``attack`` asks of a recording: the file of ``--gates``, and words of the command line.

    Args:
        arguments: of the command line.

    Raises:
        ConfigError: a setting is wrong, or nobody says who looks.
        DataError: the file cannot be read.
    """
    raw = {} if arguments.gates is None else read_tables(arguments.gates)
    if arguments.adversary:
        raw["adversaries"] = [
            {"name": words, "corrupt": words.split("+")} for words in arguments.adversary
        ]
    if arguments.attack:
        raw["attacks"] = list(arguments.attack)
    if not raw.get("adversaries"):
        raise ConfigError("--adversary", None, "say who looks, e.g. --adversary server")
    try:
        return parse_recording_config(raw)
    except ConfigError as wrong:
        if arguments.gates is not None:
            locate(wrong, arguments.gates)
        raise


def transcript(arguments: argparse.Namespace) -> int:
    """``transcript validate TRANSCRIPT``: whether every file of it is as the format says."""
    found = validate(arguments.transcript)
    told = found._asdict()
    if arguments.truth is not None:
        secrets, rounds = read_truth(arguments.truth)
        ratings = 0 if secrets.ratings is None else len(secrets.ratings["items"])
        told["truth"] = {"ratings": ratings, "secrets": sorted(secrets.secrets)}
        told["truth"]["rounds"] = len(rounds.rounds())
    if arguments.json:
        print_json(told)
    else:
        print(f"{arguments.transcript}: {found.rounds} rounds, {found.messages} messages")
    return 0
