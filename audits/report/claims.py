"""The report's section on protection: layers, claim, whether simulated, privacy cost."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from secure_fedrec.protection import BAG_RECORDS, RECORDS, Claim, Layer, require_compatible

if TYPE_CHECKING:
    from audits.run.privacy import Price
    from secure_fedrec.wire import Adversary

Execution: TypeAlias = Literal["simulated", "real"]

_MEASURED = (
    " (one process then does the work of every client: secure-fedrec check CONFIG --rounds 1 with "
    "it says what a round takes)"
)
_REAL = "the protocol itself was carried out, with keys made for this run"


def record_of(name: str) -> Layer:
    """The record of a layer over rows or bags; it is carried out in the same way over both."""
    return RECORDS[name] if name in RECORDS else BAG_RECORDS[name]


def protection_json(
    layers: Mapping[str, Any],
    *,
    prices: "Sequence[Price]" = (),
    adversaries: "Sequence[Adversary]" = (),
    claim: Claim | None = None,
    bags: tuple[Mapping[str, Any], Claim] | None = None,
) -> dict[str, Any]:
    """The report's ``protection``.

    Args:
        layers: settings by layer name, in order, over what is summed.
        prices: what the run cost in privacy.
        adversaries: adversaries of the audit; each price names those to which it applies.
        claim: what the stack promises over the algorithm; over PMF if left out.
        bags: settings by layer name over what is collected in bags, and what they promise; None
            where there are no bags.
    """
    claim = claim or require_compatible(tuple(layers))
    every = {**layers, **(bags[0] if bags else {})}
    return {
        **_claimed(layers, claim),
        "execution": execution_of(every),
        "execution_note": _note(every),
        "privacy": [
            {
                "text": str(each.statement),
                "epsilon": each.statement.epsilon,
                "delta": each.statement.delta,
                "rounds": each.statement.rounds,
                "adversary": each.statement.adversary,
                "part": each.part,
                "whole": each.whole,
                "of": [adversary.name for adversary in adversaries if each.is_of(adversary)],
            }
            for each in prices
        ],
        "bags": None if bags is None else _claimed(*bags),
    }


def _claimed(layers: Mapping[str, Any], claim: Claim) -> dict[str, Any]:
    """The claim of a stack as JSON."""
    return {
        "layers": list(layers),
        "system": claim.system,
        "hides": claim.hides,
        "assumes": claim.assumes,
        "found": claim.found,
    }


def execution_of(layers: Mapping[str, Any]) -> Execution | None:
    """How a stack's cryptography is carried out: simulated if any layer's is; None without any."""
    found = set(executions_of(layers).values())
    if "simulated" in found:
        return "simulated"
    return "real" if found else None


def executions_of(layers: Mapping[str, Any]) -> dict[str, Execution]:
    """How the cryptography of each layer that has any is carried out, by name."""
    found = {name: _execution(settings) for name, settings in layers.items()}
    return {name: execution for name, execution in found.items() if execution is not None}


def _execution(settings: Any) -> Execution | None:
    execution = getattr(settings, "execution", None)
    return "real" if execution == "real" else None if execution is None else "simulated"


def _note(layers: Mapping[str, Any]) -> str | None:
    """One sentence on what stood in for the cryptography, if anything did."""
    executions = executions_of(layers)
    simulated = [name for name, execution in executions.items() if execution == "simulated"]
    if simulated:
        return "; ".join(record_of(name).simulated for name in simulated) + _MEASURED
    if "real" not in executions.values():
        return None
    return _REAL + "".join(record_of(name).real(each) for name, each in layers.items())
