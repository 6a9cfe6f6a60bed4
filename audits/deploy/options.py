"""Options of the commands on hosts; imports nothing that takes time."""

import argparse
from pathlib import Path


def add_log_format(command: argparse.ArgumentParser) -> None:
    """The option for the format of a host's log."""
    about = "format of the log on standard error: lines, or a JSON object per line (default: text)"
    command.add_argument("--log-format", choices=("text", "json"), default="text", help=about)


def add_watch(command: argparse.ArgumentParser) -> None:
    """The options for watching a host while it runs."""
    add_log_format(command)
    about = "file for Prometheus, in its text format"
    command.add_argument("--metrics", type=Path, metavar="FILE", help=about)


def add_hosts(command: argparse.ArgumentParser) -> None:
    """Options of ``deploy`` that say which hosts are started here."""
    add = command.add_argument
    add("--prepare", action="store_true", help="make the folders of all hosts, but start no host")
    alone = "run only the server, for sites that run elsewhere"
    add("--superlink", metavar="HOST:PORT", help=alone)
    add("--certificates", type=Path, metavar="FILE", help="PEM file of that SuperLink's CA")
    record = "hosts record what they see, unsealed, for gather and an audit"
    add("--record", action="store_true", help=record)
    add_watch(command)


def add_gather(command: argparse.ArgumentParser) -> None:
    """Options of ``gather``."""
    command.add_argument("deployed", type=Path, metavar="DEPLOYED", help="folder of all hosts")
    command.add_argument("--out", type=Path, required=True, help="run folder to make")


def add_site(command: argparse.ArgumentParser) -> None:
    """Options of the command."""
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show", help="show rounds, epsilon spent and left, and whether it is halted"
    )
    show.add_argument("agreement", type=Path, help="folder of what all hosts are given")
    show.add_argument("site", type=Path, help="the client's own folder")
    show.add_argument(
        "--key", type=Path, help="key file that seals private state (default: SITE/key)"
    )
    show.add_argument("--json", action="store_true", help="machine-readable result on stdout")
    resume = actions.add_parser("resume", help="let a halted client take part again")
    resume.add_argument("site", type=Path, help="the client's own folder")
    resume.add_argument("word", help="the owner's reason, kept beside what halted it")


def add_roster(command: argparse.ArgumentParser) -> None:
    """Options of the command."""
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    new = actions.add_parser(
        "new", help="make a key; its public half goes to FILE.pub and is printed"
    )
    new.add_argument("party", help="operator, server, authority, client:N, denoiser:N or mix:N")
    new.add_argument("file", type=Path, help="file for the key; it must not exist yet")
    add = actions.add_parser("add", help="list a party")
    add.add_argument("list", type=Path, help="the list; made if it is missing")
    add.add_argument("party", help="server, authority, client:N, denoiser:N or mix:N")
    add.add_argument("key", help="its public key, or the .pub file with it")
    add.add_argument("--replace", action="store_true", help="replace the party's key by a new one")
    remove = actions.add_parser("remove", help="leave a party out of the list")
    remove.add_argument("list", type=Path)
    remove.add_argument("party", help="the party's name in the list")
    sign = actions.add_parser("sign", help="sign the list")
    sign.add_argument("list", type=Path)
    sign.add_argument("--operator", type=Path, required=True, metavar="FILE", help="its key")
    sign.add_argument("--out", type=Path, required=True, metavar="FILE", help="the roster")
    sign.add_argument("--version", type=int, required=True, help="greater than the last version")
    sign.add_argument(
        "--round-floor", type=int, default=0, metavar="N", help="a round that has been reached"
    )
    sign.add_argument(
        "--previous-operator",
        metavar="KEY",
        help="if another operator takes over: the public key, or its file, of the operator that "
        "signed the roster in FILE",
    )
    beacon = actions.add_parser("beacon", help="publish the next epoch's randomness, signed")
    beacon.add_argument(
        "agreement",
        type=Path,
        help="folder that all hosts are given; for a mean, a folder with roster and operator.pub",
    )
    beacon.add_argument(
        "--terms", metavar="HEX", help="for a mean: the value of terms.digest.hex()"
    )
    beacon.add_argument("--operator", type=Path, required=True, metavar="FILE", help="its key")
    beacon.add_argument(
        "--out", type=Path, required=True, metavar="DIR", help="folder of all published values"
    )
    beacon.add_argument(
        "--after",
        type=int,
        default=0,
        metavar="EPOCH",
        help="the last epoch of the previous operator, if another operator has taken over",
    )
    layer = actions.add_parser(
        "layer-key", help="make a layer's own key, such as Paillier's; its public half: FILE.pub"
    )
    layer.add_argument("agreement", type=Path, help="folder of what all hosts are given")
    layer.add_argument("file", type=Path, help="file for the key; it must not exist yet")
    show = actions.add_parser("show", help="check a roster and list its parties")
    show.add_argument("roster", type=Path)
    show.add_argument("--operator", required=True, metavar="KEY", help="its public key, or file")
    show.add_argument("--json", action="store_true", help="machine-readable result on stdout")
