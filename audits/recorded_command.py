"""Commands on recordings made elsewhere: detect and validate them."""

import argparse

from audits.run.folder import CONFIG_NAME
from audits.terminal import print_json
from secure_fedrec.errors import ConfigError
from secure_fedrec.recording import validate
from secure_fedrec.recording.parquet_form import from_parquet, to_parquet
from secure_fedrec.recording.truth_file import read_truth


def is_foreign(arguments: argparse.Namespace) -> bool:
    """Whether ``attack`` is meant for a recording made elsewhere.

    Raises:
        ConfigError: an option for such a recording is used with the transcript of a run.
    """
    asked = [name for name in ("truth", "gates", "out") if getattr(arguments, name) is not None]
    of_run = (arguments.transcript.parent / CONFIG_NAME).exists()
    if asked and of_run:
        problem = "applies to recordings made elsewhere; a run is judged by its own configuration"
        raise ConfigError(f"--{asked[0]}", str(getattr(arguments, asked[0])), problem)
    return bool(asked)


def transcript(arguments: argparse.Namespace) -> int:
    """``transcript validate TRANSCRIPT``: check that every file follows the format.

    ``transcript convert TRANSCRIPT OUT`` writes its Parquet form, or the transcript of a Parquet
    form.
    """
    place, out = arguments.transcript, arguments.converted
    if (out is not None) != (arguments.action == "convert"):
        raise ConfigError("OUT", out and str(out), "is for convert only, and convert needs it")
    if out is not None and any(place.glob("rounds/*/*.parquet")):
        from_parquet(place, out)
        place = out
    elif out is not None:
        to_parquet(place, out)
    found = validate(place, truth=arguments.truth)
    told = found._asdict()
    if arguments.truth is not None:
        secrets, rounds = read_truth(arguments.truth)
        ratings = 0 if secrets.ratings is None else len(secrets.ratings["items"])
        told["truth"] = {"ratings": ratings, "secrets": sorted(secrets.secrets)}
        told["truth"]["rounds"] = len(rounds.rounds())
    if arguments.json:
        print_json(told)
    else:
        print(f"{arguments.converted or place}: {found.rounds} rounds, {found.messages} messages")
    return 0
