"""What a report says about the protection: layers, claim, how it was carried out, privacy."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from audits.privacy import privacy_statement
from secure_fedrec.protection import Collector, require_compatible

__all__ = ["Execution", "execution_of", "protection_json"]

Execution: TypeAlias = Literal["simulated", "real"]

_SIMULATED: Mapping[str, str] = MappingProxyType(
    {
        "masking": "uploads were hidden by pads with the protocol's distribution; run with "
        "execution = real for the cryptography itself",
        "paillier": "uploads were random words in the place of ciphertexts; run with execution = "
        "real for the cryptography itself",
        "shared-upload": "shares were drawn from one keystream per denoiser; run with real = true "
        "for the cryptography itself",
        "linkage-hardened": "shares were drawn from one keystream, no cell was sealed or mixed; "
        "run with real = true for the cryptography itself",
        "routing": "messages lost their senders without being sealed or mixed; run with "
        "execution = real for the cryptography itself",
    }
)
"""What stood in for the cryptography, by layer."""

_REAL = "the protocol itself was carried out, with keys made for this run"
_REAL_PAILLIER = (
    "words were packed, encrypted, added and decrypted under a key made for this run; messages "
    "were not signed, and the item table was not kept encrypted"
)


def protection_json(
    layers: Mapping[str, Any], collector: Collector, *, rounds: int
) -> dict[str, Any]:
    """The report's ``protection``.

    Args:
        layers: settings by layer name, in order.
        collector: what was run.
        rounds: how many rounds were.
    """
    claim = require_compatible(tuple(layers))
    executions = {name: _execution(settings) for name, settings in layers.items()}
    statement = privacy_statement(collector, rounds=rounds) if rounds else None
    statements = [] if statement is None else [statement]
    return {
        "layers": list(layers),
        "system": claim.system,
        "hides": claim.hides,
        "assumes": claim.assumes,
        "found": claim.found,
        "execution": execution_of(layers),
        "execution_note": _note(executions),
        "privacy": [
            {
                "text": str(each),
                "epsilon": each.epsilon,
                "delta": each.delta,
                "rounds": each.rounds,
                "adversary": each.adversary,
            }
            for each in statements
        ],
    }


def execution_of(layers: Mapping[str, Any]) -> Execution | None:
    """How a stack's cryptography is carried out: simulated if any layer's is; None without any."""
    found = {_execution(settings) for settings in layers.values()} - {None}
    if "simulated" in found:
        return "simulated"
    return "real" if found else None


def _execution(settings: Any) -> Execution | None:
    execution = getattr(settings, "execution", None)
    if execution is None and isinstance(getattr(settings, "real", None), bool):
        return "real" if settings.real else "simulated"
    return "real" if execution == "real" else None if execution is None else "simulated"


def _note(executions: Mapping[str, Execution | None]) -> str | None:
    """One sentence on what stood in for the cryptography, if anything did."""
    simulated = [name for name, execution in executions.items() if execution == "simulated"]
    if simulated:
        return "; ".join(_SIMULATED[name] for name in simulated)
    if "real" not in executions.values():
        return None
    return _REAL_PAILLIER if "paillier" in executions else _REAL
