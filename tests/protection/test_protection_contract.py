"""Every layer keeps the contract that an implementer inherits."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from secure_fedrec.protection import BAG_RECORDS, RECORDS, Stack
from secure_fedrec.protection.base.expected_senders import Heard
from secure_fedrec.protection.denoisers.embedded import Denoisers
from secure_fedrec.testing import LayerContract

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "virtual-ratings": {"sticky": True},
    "denoisers": {"count": 2},
    "shared-upload": {"count": 2, "floor": 2},
    "clip": {"norm": 4.0},
    "skellam": {"fraction_bits": 8, "noise_multiplier": 1.0},
    "local-dp": {"clip": 3.0, "fraction_bits": 4, "noise_multiplier": 1.0},
}


class Shipped(LayerContract):
    """With the settings above."""

    def settings(self) -> Mapping[str, Any]:
        return {name: self._records[name].settings(**SETTINGS.get(name, {})) for name in self.names}


for record in (*RECORDS.values(), *BAG_RECORDS.values()):
    case = f"Test{record.name.title().replace('-', '')}" + (
        "InBags" if record.name in BAG_RECORDS else ""
    )
    globals()[case] = type(case, (Shipped,), {"layer": record})


class TestMaskingWithAFloor(LayerContract):
    """An option under which sums are no longer exact."""

    layer = RECORDS["masking"]

    def settings(self) -> Mapping[str, Any]:
        return {"masking": self.layer.settings(tail_floor=2)}


WHOLE, TAKE = Heard.require_complete, Heard.take


def last_is_optional(heard: Any) -> None:
    heard._awaited[-1] = False
    WHOLE(heard)


def lax_from_round_two(heard: Any) -> None:
    if heard._round == 1:
        WHOLE(heard)


def misses_one_only(heard: Any) -> None:
    if heard._awaited.sum() < 2:
        WHOLE(heard)


def takes_all_from_round_two(heard: Any, messages: Any) -> None:
    if heard._round == 1:
        TAKE(heard, messages)
    else:
        heard._awaited[messages.senders.ids] = False


@pytest.mark.parametrize(
    ("name", "careless", "says"),
    [
        ("require_complete", last_is_optional, "Drop of UPLOAD in round 2, the last client"),
        ("require_complete", lax_from_round_two, "Drop of UPLOAD in round 2"),
        ("require_complete", misses_one_only, "Drop of UPLOAD in round 2"),
        ("take", takes_all_from_round_two, "Repeat of UPLOAD in round 2"),
    ],
)
def test_what_goes_amiss_in_silence_is_told(
    name: str, careless: Callable[..., None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Heard, name, careless)
    contract = type("Mine", (Shipped,), {"layer": RECORDS["denoisers"]})()
    with pytest.raises(AssertionError, match=says):
        contract.test_no_message_goes_amiss_in_silence()


@pytest.mark.parametrize(
    ("layer", "trait", "value"),
    [("virtual-ratings", "virtual_rows", "none"), ("randomized-response", "reports", "all")],
)
def test_traits_that_lie_are_told(
    layer: str, trait: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Stack.describe

    def lying(stack: Stack) -> dict[str, Any]:
        known = dict(told(stack))
        return {**known, "traits": {**known["traits"], trait: value}}

    monkeypatch.setattr(Stack, "describe", lying)
    contract = type("Mine", (Shipped,), {"layer": RECORDS[layer]})()
    with pytest.raises(AssertionError, match=f"states {trait}"):
        contract.test_it_is_lossless_where_it_says_so()


@pytest.mark.parametrize("told", [{}, {"count": 9}])
def test_settings_that_are_not_public_are_told(
    told: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Denoisers, "describe", lambda layer: ("denoisers", told))
    contract = type("Mine", (Shipped,), {"layer": RECORDS["denoisers"]})()
    with pytest.raises(AssertionError, match=r"does not say what \['count'\] are"):
        contract.test_public_knowledge_has_its_settings_and_traits()


def test_a_layer_must_be_named() -> None:
    with pytest.raises(AssertionError, match="say which `layer`"):
        LayerContract().test_it_stands_in_the_table()
