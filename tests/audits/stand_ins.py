"""Small stand-ins for presets on real data.

``STAND_INS`` changes the data and what depends on its size (sizes of groups, rounds, bounds that
fewer clients cannot resolve), and nothing else.
"""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import audits

__all__ = ["SMALLER", "STAND_INS"]

CONFIGS = Path(audits.__file__).with_name("configs")


def gates_without(preset: str, name: str) -> Iterator[dict[str, Any]]:
    """The gates of a preset, those of one attack or on one figure left out."""
    raw = tomllib.loads((CONFIGS / f"{preset}.toml").read_text(encoding="utf-8"))
    yield from (gate for gate in raw["gates"] if name not in (gate.get("attack"), gate["metric"]))


RATINGS = {"name": "synthetic", "clients": 160, "items": 120, "mean_ratings": 15.0}
CLICKS = {"name": "synthetic", "clients": 60, "items": 120, "mean_ratings": 15.0}
TEXTS = {"name": "stickers", "users": 40, "messages": 10, "length": 16}
RECORDS = {"name": "synthetic", "clients": 24, "users": 30, "items": 60}
MANY_RECORDS = {  # fewer do not bear the noise
    **{"name": "synthetic", "clients": 10, "users": 90, "items": 300},
    **{"mean_records": 60.0, "attributes": 18},
}
SALES = {"name": "synthetic", "clients": 200, "items": 200, "mean_ratings": 30.0}
PMF = {"data": RATINGS, "algorithm.rounds": 20}
STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "fedrec-ml100k": {**PMF, "algorithm.learning_rate": 0.1},
    "fedrecpp-ml100k": PMF,
    "fedrecpp-collusion-ml100k": {**PMF, "protection.count": 20},
    "sdcf-ml100k": PMF,
    "fedrecpp-sticky-ml100k": PMF,
    "shared-upload-ml100k": PMF,
    "masking-ml100k": {**PMF, "data": {**RATINGS, "items": 300}},  # with a tail
    "paillier-ml100k": {**PMF, "data": {**RATINGS, "items": 300}},
    "skellam-ml100k": {**PMF, "protection.min_survivors": 150},
    "furl-20newsgroups": {
        "data": {**TEXTS, "users": 80, "base_rate": 0.5},  # no label is nearly everybody's
        "gates": [*gates_without("furl-20newsgroups", "set_exact_share")],  # of two classes
        "gates.least": 0.9,
    },
    "furl-20newsgroups-masking": {
        "data": TEXTS,
        "protection.min_survivors": 30,
        "gates.max": 0.2,
    },
    "furl-ncf-ml100k": {
        "data": CLICKS,  # whose attributes nothing tells
        "gates": [*gates_without("furl-ncf-ml100k", "attribute-inference")],
        "gates.least": 0.9,
    },
    "furl-ncf-ml100k-masking": {
        "data": CLICKS,
        "protection.min_survivors": 50,
        "gates.max": 0.6,
    },
    "pfedrec-ml100k": {"data": {**RATINGS, "protocol": "published"}},
    "pfedrec-ml100k-masking": {
        "data": {**RATINGS, "protocol": "published"},
        "protection.min_survivors": 150,
    },
    "fed3cr-ml100k": {"data": CLICKS},
    "ease-ml100k": {"data": CLICKS, "recording": {"payload_rounds": [1]}},
    "ease-ml100k-masking": {
        "data": CLICKS,
        "protection.min_survivors": 50,
        "recording": {"payload_rounds": [1]},
        "gates": [*gates_without("ease-ml100k-masking", "utility_gain")],
    },
    "ease-ml100k-skellam": {
        "data": CLICKS,
        "protection.min_survivors": 50,
        "recording": {"payload_rounds": [1]},
        "gates": [*gates_without("ease-ml100k-skellam", "utility_gain")],
    },
    "feddmf-ml100k": {"data": SALES, "algorithm.training.learning_rate": 5e-3},
    "hpfl-ml100k": {
        "data": RECORDS,
        "algorithm.rounds": 3,
        "gates.least": 0.2,
        "recording.payload_rounds": [1, 2, 3],
    },
    "hpfl-ml100k-protected": {"data": MANY_RECORDS},
}

_FEW = {"data": {**RATINGS, "clients": 60, "items": 150, "mean_ratings": 8.0}}
SMALLER: Mapping[str, Mapping[str, Any]] = {
    "masking-ml100k": _FEW,
    "paillier-ml100k": _FEW,
    "quickstart": {"data": RATINGS},
    "plain": {"data": RATINGS},
    "fed3cr-ml100k": {"data": {**CLICKS, "clients": 30}},
    "furl-20newsgroups": {"data": {**TEXTS, "users": 30}},
    "furl-quickstart": {"data": {**CLICKS, "clients": 40}},
}
"""What is changed further where a verdict does not matter, only what is advised."""
