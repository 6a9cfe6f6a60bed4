"""Changes of a configuration that remove a finding, and what they cost.

No attack or layer is treated by name here. An attack states what has to be hidden to withstand it
(``Control.breaks``), a layer what it hides from whom (``Layer.stands``), and the algorithm over
which layers a claim holds. Settings that raise the number of clients behind a sum
(``Layer.options``) do not hide anything: such a setting is put above the largest sum that the
attack could have solved on this recording. Bytes are metered on a round of empty rows through the
changed stack; other costs follow from the claim of that stack.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from attacks import SUITE, Finding
from attacks.planted.controls import ControlResult
from audits.config.audit import AuditConfig
from audits.report.findings import finding_json, severity
from audits.run.privacy import prices
from secure_fedrec.errors import ConfigError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    BAG_RECORDS,
    RECORDS,
    STOPS,
    Claim,
    Layer,
    Option,
    Place,
    Sizes,
    build_stack,
)
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Adversary, Meter, Wire

_WORDS = 2_000_000
"""Limit of ring words in the round of empty rows, which has fewer clients if there are many rows.
"""


@dataclass(frozen=True, slots=True)
class _Change:
    """A stack, and the settings of its layers that are not defaults.

    Attributes:
        in_bags: whether it is over bags.
        layers: settings by name, in order.
        option: the setting that raises the fewest clients of a sum; None if a layer hides the leak.
        fewest: the value of that setting.
    """

    in_bags: bool
    layers: tuple[tuple[str, Mapping[str, Any]], ...]
    option: Option | None = None
    fewest: int = 1

    @property
    def key(self) -> str:
        """The key of the configuration."""
        return "bag_protection" if self.in_bags else "protection"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its layers."""
        return tuple(name for name, _ in self.layers)


def claimed(config: AuditConfig, attack: str, adversary: Adversary) -> bool:
    """Whether the stack claims to withstand this attack by this adversary."""
    in_bags, needed = _asked(attack)
    layers = config.bag_protection if in_bags else config.protection
    records = [_records(in_bags=in_bags)[name] for name in layers]
    return bool(needed & _hidden(records, adversary))


def findings_json(
    config: AuditConfig,
    findings: Iterable[Finding],
    controls: Mapping[str, ControlResult],
    *,
    adversaries: Sequence[Adversary],
) -> list[dict[str, Any]]:
    """The report's ``findings``, each with whether the stack claims to withstand it."""
    named = {adversary.name: adversary for adversary in adversaries}
    return [
        finding_json(finding, controls.get(finding.attack))
        | {"claimed": claimed(config, finding.attack, named[finding.adversary])}
        for finding in findings
    ]


def remedies(
    config: AuditConfig, findings: Iterable[Finding], sizes_of: Callable[..., Sizes]
) -> list[dict[str, Any]]:
    """The report's ``remedies``.

    Args:
        config: what was audited.
        findings: all findings; those that learned nothing do not need a change.
        sizes_of: sizes of the federation, optionally under other settings of the algorithm.
    """
    sizes = sizes_of()
    learned = [f for f in findings if f.measured and severity(f) not in (None, "info")]
    fewest = 1 + max(map(_reach, learned), default=0)
    changes = {repr(c): c for f in learned for c in _changes(config, f, sizes, fewest)}
    told = (_told(config, change, learned, sizes_of) for change in changes.values())

    def rank(each: Mapping[str, Any]) -> tuple[int, int, bool]:
        """Sort by findings removed, then by findings left open, then by lost accuracy."""
        return -len(each["against"]), len(each["open"]), not each["lossless"]

    return sorted(filter(None, told), key=rank)


def _reach(finding: Finding) -> int:
    """Clients behind the largest sum that an attack could have solved, if it states this."""
    return int(finding.details.get("largest_sum_within_reach", 1))


def _changes(config: AuditConfig, finding: Finding, sizes: Sizes, fewest: int) -> Iterator[_Change]:
    """Smallest stacks that withstand what was found; empty if the present stack claims to."""
    in_bags, needed = _asked(finding.attack)
    adversary = _adversary(config, finding)
    if adversary.taps:
        return
    known, table = _records(in_bags=in_bags), _claims(config, in_bags=in_bags)
    present = config.bag_protection if in_bags else config.protection
    smaller: list[frozenset[str]] = []
    # Layers that another configuration of this process loaded are not used here.
    foreign = RECORDS.added.keys() - {plugin.name for plugin in config.plugins}
    for names in sorted(table, key=len):
        if foreign.intersection(names):
            continue
        records = [known[name] for name in names]
        if any(less <= frozenset(names) for less in smaller):
            continue
        hidden = _hidden(records, adversary)
        if needed & hidden:
            smaller.append(frozenset(names))
            with suppress(ConfigError):  # the federation may be too small for any layers
                yield _Change(in_bags, _settings(records, present, sizes))
            continue
        for record in records if hidden else ():
            for option in record.options:
                if option.raises == SUITE[finding.attack].control.breaks:
                    raised = {record.name: {option.setting: fewest}}
                    with suppress(ConfigError):
                        own = _settings(records, present, sizes, raised)
                        yield _Change(in_bags, own, option, fewest)


def _withstands(config: AuditConfig, change: _Change, attack: str, adversary: Adversary) -> bool:
    """Whether a layer, under a change of sums or bags, hides what an attack has to see."""
    in_bags, needed = _asked(attack)
    present = config.bag_protection if in_bags else config.protection
    names = change.names if in_bags == change.in_bags else tuple(present)
    records = [_records(in_bags=in_bags)[name] for name in names]
    return not adversary.taps and bool(needed & _hidden(records, adversary))


def _answers(config: AuditConfig, change: _Change, finding: Finding) -> bool:
    """Whether a finding goes away: it is withstood, or its sums are beyond the attack's reach."""
    adversary, (in_bags, _) = _adversary(config, finding), _asked(finding.attack)
    if in_bags != change.in_bags or adversary.taps:
        return False
    raises = change.option is not None and change.option.raises
    beyond = raises == SUITE[finding.attack].control.breaks and change.fewest > _reach(finding)
    return beyond or _withstands(config, change, finding.attack, adversary)


def _open(config: AuditConfig, change: _Change) -> list[dict[str, str]]:
    """Attacks that read messages of the algorithm and against which the change makes no claim."""
    return [
        {"attack": attack, "adversary": adversary.name}
        for adversary in config.adversaries
        for attack in config.audited.attacks
        if not _withstands(config, change, attack, adversary)
    ]


def _asked(attack: str) -> tuple[bool, frozenset[str]]:
    """Whether an attack reads bags or sums, and what may be hidden there to withstand it."""
    control = SUITE[attack].control
    return control.in_bags, STOPS[control.breaks]


def _records(*, in_bags: bool) -> Mapping[str, Layer]:
    return BAG_RECORDS if in_bags else RECORDS


def _claims(config: AuditConfig, *, in_bags: bool) -> Mapping[tuple[str, ...], Claim]:
    return config.audited.bag_claims if in_bags else config.audited.claims


def _adversary(config: AuditConfig, finding: Finding) -> Adversary:
    return next(each for each in config.adversaries if each.name == finding.adversary)


def _hidden(records: Sequence[Layer], adversary: Adversary) -> frozenset[str]:
    """What a stack hides from a coalition.

    A coalition includes clients as far as the built stack allows; without denoisers, denoisers
    count as ordinary clients.
    """
    denoised = any(record.traits.denoising not in (None, "none") for record in records)
    roles = {party.partition(":")[0].rstrip("s") for party in adversary.corrupt} - {"client"}
    roles -= set() if denoised else {"denoiser"}
    stands = (stand for record in records for stand in record.stands)
    return frozenset(stand.hides for stand in stands if roles <= {*stand.corrupt})


def _settings(
    records: Sequence[Layer],
    present: Mapping[str, Any],
    sizes: Sizes,
    raised: Mapping[str, Mapping[str, int]] = MappingProxyType({}),
) -> tuple[tuple[str, Mapping[str, Any]], ...]:
    """Settings of existing layers are kept; new layers get initial settings.

    If a new layer is put on an existing one, the existing layer gets at least its initial settings,
    and none of its options: noise needs more survivors than masks alone, and refuses a floor.
    """
    found = []
    below = {name for new in records if new.name not in present for name in new.requires}
    for record in records:
        start, there = record.start(sizes), present.get(record.name)
        own = dict(start) if there is None else _given(there)
        if there is not None and record.name in below:
            own |= {key: max(value, getattr(there, key)) for key, value in start.items()}
            ended = {option.setting for option in record.options}
            own = {key: value for key, value in own.items() if key not in ended}
        found.append((record.name, {**own, **raised.get(record.name, {})}))
    return tuple(found)


def _given(settings: Any) -> dict[str, Any]:
    """Settings that are not defaults."""
    plain = {each.name: each.default for each in fields(settings)}
    return {key: value for key, value in asdict(settings).items() if value != plain[key]}


def _learner(config: AuditConfig, change: _Change) -> Any:
    """Settings of the algorithm with which training works under a change; None to keep its own.

    Raises:
        ConfigError: they contradict the algorithm's other settings.
    """
    known = _records(in_bags=change.in_bags)
    asked = {key: value for name in change.names for key, value in known[name].bears.items()}
    own = {key: getattr(config.algorithm, key, None) for key in asked}
    return None if own == asked or None in own.values() else replace(config.algorithm, **asked)


def _told(
    config: AuditConfig,
    change: _Change,
    learned: Sequence[Finding],
    sizes_of: Callable[..., Sizes],
) -> dict[str, Any] | None:
    """A change as in ``report.json``; None if this federation does not allow it."""
    answered = [finding for finding in learned if _answers(config, change, finding)]
    claim = _claims(config, in_bags=change.in_bags)[change.names]
    known, option = _records(in_bags=change.in_bags), change.option
    try:
        learner = _learner(config, change)
        sizes = sizes_of(learner)
        moved = None if change.in_bags else _bytes_up(change, sizes, config.ring)
        if change.in_bags:
            _require_priced(config, change, sizes)
    except ConfigError:
        return None
    algorithm = (
        {}
        if learner is None
        else {"name": config.written("algorithm", config.system), **_given(learner)}
    )
    return {
        "key": change.key,
        **({"algorithm": algorithm} if algorithm else {}),
        "value": [
            {"layer": config.written("layer", name), **settings} for name, settings in change.layers
        ],
        "against": [{"attack": f.attack, "adversary": f.adversary} for f in answered],
        "system": claim.system,
        "hides": claim.hides,
        "assumes": claim.assumes,
        "remains": claim.found,
        "open": _open(config, change),
        "lossless": claim.lossless and (option is None or option.lossless),
        "bytes_up_per_round": moved,
        "costs": [
            *filter(None, (known[name].costs for name in change.names)),
            *([] if option is None else [option.costs]),
        ],
    }


def _require_priced(config: AuditConfig, change: _Change, sizes: Sizes) -> None:
    """Refuse noise in bags without a finite price over the rounds of a run.

    Raises:
        ConfigError: such a change does not exist, or the layers do not fit the federation.
    """
    layers = {name: BAG_RECORDS[name].settings(**settings) for name, settings in change.layers}
    streams = Streams.from_seed(0)
    stack = build_stack({}, sizes=sizes, codec=config.ring, streams=streams, bag_layers=layers)
    prices(stack, rounds=config.algorithm.rounds)


def _bytes_up(change: _Change, sizes: Sizes, codec: FixedPoint) -> float:
    """Mean bytes that a client sends in a round in which all clients send every row.

    Raises:
        ConfigError: the stack does not fit the federation.
    """
    own = {name: RECORDS[name].settings(**settings) for name, settings in change.layers}
    place = Place(layers=own, sizes=sizes, codec=codec, streams=Streams.from_seed(0))
    for name in own:
        RECORDS[name].fits(place)
    words = sizes.n_items * (sizes.width + 1)
    clients = max(3, min(sizes.cohort, _WORDS // words))
    few = replace(sizes, n_clients=clients, cohort=clients, bags={})
    layers = {
        name: RECORDS[name].settings(**{**settings, **_fitting(name, settings, few)})
        for name, settings in change.layers
    }
    for name in layers:  # layers whose budget sets the noise; its size does not matter here
        if (budget := RECORDS[name].budget(layers, few)) is not None:
            layers[name] = budget.settings(1.0)
    stack = build_stack(layers, sizes=few, codec=codec, streams=Streams.from_seed(0))
    meter, everybody = Meter(clients), np.arange(clients)
    session = stack.collector.open(round_=1, participants=everybody, wire=Wire(meter=meter))
    rows = np.tile(np.arange(sizes.n_items, dtype=np.int32), clients)
    values = np.zeros((len(rows), sizes.width), dtype=codec.dtype)
    ends = np.arange(clients + 1) * sizes.n_items
    block = RowBlock(indptr=ends, rows=rows, values=values)
    session.submit(session.order, block, np.zeros(len(rows), dtype=bool))
    session.close()
    return float(meter.clients("bytes_sent").mean())


def _fitting(name: str, settings: Mapping[str, Any], few: Sizes) -> Mapping[str, Any]:
    """Adapt settings that depend on the number of clients to fewer clients."""
    return {key: value for key, value in RECORDS[name].start(few).items() if key in settings}
