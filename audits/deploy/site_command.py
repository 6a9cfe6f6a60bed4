"""``secure-fedrec site``: show a site's state to its owner, and resume it after a halt."""

import argparse
import json
import math
from pathlib import Path
from typing import Any

from audits.deploy.homes import identities_at, load_agreement
from secure_fedrec.engines.distributed.host_messages import Agreement
from secure_fedrec.engines.distributed.site_state import HaltedClient, SealedState, SiteState
from secure_fedrec.errors import ConfigError
from secure_fedrec.protection.session import Identity, Node, Role
from secure_fedrec.protection.session.journal import MOST_STATES_BESIDE
from secure_fedrec.protection.session.journal_entries import Entries
from secure_fedrec.protection.session.roster import read_private


def site(arguments: argparse.Namespace) -> int:
    """``site show|resume``."""
    print({"show": _show, "resume": _resume}[arguments.action](arguments))
    return 0


def standing(agreement: Path, own: Path, key: Path | None = None) -> dict[str, Any]:
    """The state of a site, as JSON values.

    Args:
        agreement: folder of what all hosts are given.
        own: the site's folder.
        key: what seals its private state; by default the file in its folder.

    Raises:
        DataError, ConfigError, CheckpointError, ProtocolError: something in them is not in order.
    """
    blueprint, agreed = load_agreement(agreement)
    client, identities = identities_at(_state(own).parent)
    state = SealedState(
        own / "state", read_private(own / "key" if key is None else key, "site.key")
    )
    kept, plan = state.load(), blueprint.plan()
    journal = state.look(owner=client)
    sent = journal.spent
    return {
        "client": client,
        "federation": agreed.federation.hex(),
        "roster": agreed.roster.version,
        "round": 0 if kept is None else kept.round,
        "rounds": plan.algorithm.rounds,
        "sat_out": state.halted.sat_out,
        "halted": state.halted.reason,
        "refused": _refused(agreed, identities[Node(Role.CLIENT, client)], kept, journal),
        "computed_from": journal.computed,
        "most_computed_from": plan.algorithm.rounds + MOST_STATES_BESIDE,
        "noised_uploads": sent,
        "epsilon_spent": _finite(plan.price(sent)),
        "epsilon_left": _finite(plan.budget - plan.price(sent)) if plan.budget else None,
        "epsilon": _finite(plan.budget) if plan.budget else None,
    }


def _show(arguments: argparse.Namespace) -> str:
    found = standing(arguments.agreement, arguments.site, arguments.key)
    if arguments.json:
        return json.dumps(found)
    lines = [
        f"client {found['client']}, roster {found['roster']}",
        f"summed in round {found['round']} last, of {found['rounds']}",
    ]
    states, most_states = found["computed_from"], found["most_computed_from"]
    lines.append(f"computed from {states} public states, of at most {most_states}")
    spent, left, most = (found[name] for name in ("epsilon_spent", "epsilon_left", "epsilon"))
    if most is None:
        lines.append("no noise: nothing is counted")
    else:
        sent = f"{found['noised_uploads']} noised uploads have spent epsilon {spent:.4g}"
        lines.append(f"{sent} of {most:.4g}, {left:.4g} is left")
    if found["sat_out"]:
        lines.append(
            f"{found['sat_out']} rounds sat out because training or encoding failed on its data: "
            "see state/sat-out"
        )
    halted, refused = found["halted"], found["refused"]
    if halted is not None:
        lines.append(
            f"halted: {(halted.strip() or 'the reason was not recorded').splitlines()[-1]}"
        )
    if refused is not None:
        lines.append(f"takes no part: {refused}")
    return "\n".join(lines if halted or refused else [*lines, "takes part"])


def _refused(
    agreed: Agreement, own: Identity, kept: SiteState | None, journal: Entries
) -> str | None:
    """Why a site cannot take part under an agreement; None if it can."""
    try:
        agreed.roster.require_listed(own)
        if kept is not None:
            kept.under(agreed.roster)
    except ConfigError as refusal:
        return str(refusal)
    if journal.took_part and journal.federation not in (b"", agreed.federation):
        return "its journal is of another federation: of another operator, or other settings"
    return None


def _resume(arguments: argparse.Namespace) -> str:
    halted = HaltedClient(_state(arguments.site))
    if halted.reason is None and not halted.sat_out:
        raise ConfigError("site", str(arguments.site), "is not halted")
    halted.resume(arguments.word)
    return f"takes part again; {halted.history} says what halted it"


def _state(own: Path) -> Path:
    """Where a site's state is.

    Raises:
        ConfigError: the site has not been started.
    """
    state = own / "state"
    if not state.is_dir():
        raise ConfigError(
            "site", str(own), "does not hold the state of a site that has been started"
        )
    return state


def _finite(epsilon: float) -> float | None:
    return epsilon if math.isfinite(epsilon) else None
