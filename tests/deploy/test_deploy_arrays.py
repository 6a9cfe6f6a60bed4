"""A public state of other arrays than the algorithm's is refused by all, and halts nobody.

Over every algorithm that can be deployed, and every array of its state after a round.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.systems import SYSTEMS, system_named
from audits.systems.feddmf.organisations import FORMS
from secure_fedrec.algorithms.base import PublicState, VaryingExtras
from secure_fedrec.errors import ConfigError, ProtocolError
from tests.deploy.memory import Deployment, silences
from tests.deploy.test_deploy_rounds import EXCHANGED, HPFL, settings

Array = np.ndarray[Any, np.dtype[np.float64]]

TEXTS = {
    "data": {"name": "stickers", "users": 4, "messages": 10, "length": 8},
    "algorithm": {"user_dim": 3, "character_dim": 4, "hidden": 4, "mlp": 6},
}
VARIANTS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    **{name: ({"algorithm": {"rank": 4}},) for name in SYSTEMS if name.startswith("fed3cr")},
    "pmf": ({}, {"algorithm": {"biases": True}}),
    "furl": ({}, TEXTS),
    "feddmf": tuple(
        {**EXCHANGED, "algorithm": {"epochs": 4, "form": form}}
        for form in FORMS
        if form != "served"
    ),
    "hpfl": (HPFL, {**HPFL, "algorithm": {**HPFL["algorithm"], "threshold": "quantile"}}),
}
"""Settings beside the default ones, where an algorithm has other arrays under them."""

DEPLOYABLE = [
    (name, variant)
    for name in SYSTEMS
    if system_named(name).device is not None
    for variant in range(len(VARIANTS.get(name, ({},))))
]


def cut(values: Array) -> Array:
    return values[:-1] if len(values) else np.zeros((1, *values.shape[1:]))


def wide(values: Array) -> Array:
    return np.stack([values, values], axis=-1)


def beyond(values: Array) -> Array:
    return np.full_like(values, 1e39) if values.size else wide(values)


ROWS: tuple[Callable[[Array], Array], ...] = (cut, lambda values: np.concatenate([values] * 3)[1:])
OTHERS: tuple[Callable[[Array], Array], ...] = (
    wide,
    beyond,
    lambda values: values.reshape(*values.shape[:-1], 1, -1) if values.size else wide(values),
    lambda values: np.zeros(()),
)


def deployed(name: str, variant: int, folder: Path) -> Deployment:
    own = VARIANTS.get(name, ({},))[variant]
    algorithm = {"name": name, "rounds": 3, **own.get("algorithm", {})}
    if "epochs" in algorithm:
        del algorithm["rounds"]
    return Deployment.of(settings(**{**own, "algorithm": algorithm}), folder, attempts=1)


def test_a_form_whose_vectors_other_hosts_cannot_place_is_refused(tmp_path: Path) -> None:
    served = {**EXCHANGED, "algorithm": {"name": "feddmf", "epochs": 4, "form": "served"}}
    with pytest.raises(ConfigError, match="runs in the embedded engine only"):
        Deployment.of(settings(**served), tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.claim("hosts-malformed-state")
@pytest.mark.parametrize(("name", "variant"), DEPLOYABLE)
def test_no_other_array_reaches_training(name: str, variant: int, tmp_path: Path) -> None:
    ran = deployed(name, variant, tmp_path)
    ran.rounds(1)
    plan, before = ran.coordinator._plan, ran.coordinator.public
    single = before.extras.keys() - plan.common(before).keys()
    varying: set[str] = set()
    if isinstance(plan.algorithm, VaryingExtras):
        varying = {n for n, rows in plan.algorithm.extra_rows(1).items() if rows is None}

    def refused(public: PublicState) -> None:
        told = len(ran.transport.log)
        ran.coordinator.public = public
        with pytest.raises(ProtocolError):
            ran.coordinator.run_round()
        assert ran.coordinator.public is public
        assert {who for who, _ in ran.transport.log[told:]} == set(ran.layout.sites())

    def with_arrays(change: Callable[[Array], Array], *names: str) -> PublicState:
        if names == ("table",):
            return replace(before, table=change(before.table))
        changed = {each: change(before.extras[each]) for each in names}
        return replace(before, extras={**before.extras, **changed})

    groups = [("table",), *((each,) for each in plan.common(before)), tuple(single)]
    for names in filter(None, groups):
        for change in (*ROWS, *OTHERS) if not varying & set(names) else OTHERS:
            refused(with_arrays(change, *names))
        if not {"table", *single} & set(names):
            others = {each: values for each, values in before.extras.items() if each not in names}
            refused(replace(before, extras=others))
    for more in ("more", "table-99", "table-01"):
        refused(replace(before, extras={**before.extras, more: before.table}))
    for each in varying:
        for change in ROWS:  # any number of rows can be: it is trained on
            ran.coordinator.public = with_arrays(change, each)
            with suppress(ProtocolError):
                ran.coordinator.run_round()
    assert not silences(tmp_path)
