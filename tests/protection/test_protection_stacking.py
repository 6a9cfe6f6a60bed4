"""Stacks by name: those of the table can be built, others are refused, mixes change no bit."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from secure_fedrec.algorithms import PMF, PMFConfig
from secure_fedrec.data import SyntheticConfig, generate
from secure_fedrec.engines import RecordedRun, rating_problem
from secure_fedrec.errors import ConfigError, LosslessnessError, ProtocolError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import (
    LAYERS,
    STACKS,
    Sizes,
    Stack,
    VirtualRatingsConfig,
    build_stack,
)
from secure_fedrec.protection.base.stack import hosting_of
from secure_fedrec.protection.denoisers.embedded_mixes import RoutedDenoisers
from secure_fedrec.protection.dp.config import SkellamLayerConfig
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.routing import Directory, SentCells, address_of
from secure_fedrec.protection.routing.config import RoutingLayerConfig
from secure_fedrec.protection.shared_upload import SharedUploadConfig
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import RowBlock
from secure_fedrec.wire import Meter, RecordingPolicy, Step, Wire, encode_rows
from tests.mix_network import changed_by_last_mix, noted_at_first_mix, own_cell

N_CLIENTS, N_ITEMS, RANK = 20, 30, 3
TABLE = generate(SyntheticConfig(clients=N_CLIENTS, items=N_ITEMS, mean_ratings=6.0, seed=2))
SIZES = Sizes(n_clients=N_CLIENTS, n_items=N_ITEMS, width=RANK, cohort=N_CLIENTS)


def settings_of(stack: tuple[str, ...]) -> dict[str, Any]:
    """Default settings, but for what has no default."""
    made = {name: LAYERS[name]() for name in stack if name != "skellam"}
    if "shared-upload" in stack and "virtual-ratings" in stack:
        made["virtual-ratings"] = VirtualRatingsConfig(sticky=True)
    if "skellam" in stack:
        made["skellam"] = SkellamLayerConfig(noise_multiplier=1.0)
    return {name: made[name] for name in stack}


def run_of(layers: dict[str, Any], rounds: int = 2, *, biases: bool = False) -> RecordedRun:
    streams, codec = Streams.from_seed(3), FixedPoint()
    rank = RANK - biases  # rows are as wide
    algorithm = PMF(PMFConfig.printed(rank=rank, biases=biases, rounds=rounds, init_scale=0.3))
    run = RecordedRun(
        algorithm=algorithm,
        stack=build_stack(layers, sizes=SIZES, codec=codec, streams=streams),
        problem=rating_problem(algorithm, TABLE),
        streams=streams,
        policy=RecordingPolicy(payload_rounds=(1, 2)),
    )
    for _ in range(rounds):
        run.run_round()
    return run


@pytest.mark.claim("one-sum-in-all-protections")
@pytest.mark.parametrize("biases", [False, True])
@pytest.mark.parametrize("stack", STACKS, ids=lambda stack: " + ".join(stack) or "none")
def test_every_stack_of_the_table_runs_and_is_lossless_where_it_says_so(
    stack: tuple[str, ...], biases: bool
) -> None:
    run = run_of(settings_of(stack), biases=biases)
    described = run.transcript.public["protection"]["layers"]
    assert described == [layer for layer in stack if layer in described]
    if "randomized-response" in stack or not STACKS[stack].lossless:
        return  # its twin drops the same reports; tests/properties compare the two
    assert run.table_digests == run_of({}, biases=biases).table_digests


@pytest.mark.parametrize(
    "stack",
    [
        ("masking", "denoisers"),
        ("virtual-ratings", "masking"),
        ("skellam", "masking"),
        ("clip", "masking"),
        ("clip", "skellam"),
        ("masking", "clip", "skellam"),
        ("routing",),
        ("shared-upload",),
        ("masking", "paillier"),
    ],
    ids=" + ".join,
)
def test_other_stacks_are_refused_with_those_that_exist(stack: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError, match="do not stack") as refused:
        build_stack(
            settings_of(stack), sizes=SIZES, codec=FixedPoint(), streams=Streams.from_seed(1)
        )
    assert refused.value.choices is not None
    assert "clip + skellam + masking" in refused.value.choices


def test_a_floor_that_no_cohort_reaches_is_refused() -> None:
    sticky = VirtualRatingsConfig(sticky=True)
    layers = {"virtual-ratings": sticky, "shared-upload": SharedUploadConfig(floor=16)}
    small = Sizes(n_clients=N_CLIENTS, n_items=N_ITEMS, width=RANK, cohort=15)
    with pytest.raises(ConfigError, match=r"protection\.floor = 16: only 15 clients"):
        build_stack(layers, sizes=small, codec=FixedPoint(), streams=Streams.from_seed(1))


def test_shared_uploads_refuse_items_that_could_be_intersected() -> None:
    layers = {"virtual-ratings": VirtualRatingsConfig(), "shared-upload": SharedUploadConfig()}
    with pytest.raises(ConfigError, match=r"protection\.sticky = False: .*intersected"):
        build_stack(layers, sizes=SIZES, codec=FixedPoint(), streams=Streams.from_seed(1))


def test_an_active_server_is_withstood_on_the_complete_graph_only() -> None:
    layers = {"masking": MaskingLayerConfig(adversary="active")}
    for cohort, fits in ((128, True), (129, False)):
        sizes = Sizes(n_clients=200, n_items=N_ITEMS, width=RANK, cohort=cohort)
        settings: dict[str, Any] = {
            "sizes": sizes,
            "codec": FixedPoint(),
            "streams": Streams.from_seed(1),
        }
        if fits:
            build_stack(layers, **settings)
            continue
        with pytest.raises(ConfigError, match="129 clients in a round need a sparse graph"):
            build_stack(layers, **settings)


def routed(execution: str, **routing: Any) -> dict[str, Any]:
    layers = settings_of(("virtual-ratings", "denoisers"))
    config = RoutingLayerConfig(execution=execution, **{"cell_bytes": 2048, **routing})
    return {**layers, "routing": config}


NO_ROWS = RowBlock(
    indptr=np.array([0, 0]),
    rows=np.zeros(0, dtype=np.int32),
    values=np.zeros((0, RANK), dtype=np.uint64),
)
ROWS = encode_rows(NO_ROWS, round_=1, step=Step.NOISE, codec=FixedPoint())
"""What a client without virtual rows sends to its denoiser."""


def routed_collector(execution: str) -> RoutedDenoisers:
    stack = build_stack(
        routed(execution), sizes=SIZES, codec=FixedPoint(), streams=Streams.from_seed(3)
    )
    assert isinstance(stack.collector, RoutedDenoisers)
    return stack.collector


def test_mixes_change_no_bit() -> None:
    plain = run_of(settings_of(("virtual-ratings", "denoisers")))
    for execution in ("simulated", "real"):
        assert run_of(routed(execution)).table_digests == plain.table_digests
    assert (
        run_of(routed("real", kem="mlkem768-x25519", cell_bytes=8192)).table_digests
        == plain.table_digests
    )


def test_a_message_costs_whole_cells() -> None:
    run = run_of(routed("simulated"))
    collector = run.engine.stack.collector
    assert isinstance(collector, RoutedDenoisers)
    meter = run.engine.wire.meter
    ordinary = ~collector.binding.is_denoiser
    plain = run_of(settings_of(("virtual-ratings", "denoisers"))).engine.wire.meter
    extra = meter.clients("bytes_sent") - plain.clients("bytes_sent")
    assert np.all(extra[ordinary] > 0)
    received = meter.clients("bytes_received")[~ordinary] - (
        run.engine.public.table.nbytes * run.completed
    )
    assert np.all(received % collector.routing.cell_bytes == 0)


def test_mixes_that_lose_or_change_a_message_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(_: Directory, cells: list[bytes]) -> list[bytes]:
        return cells[1:]

    def stuff(directory: Directory, cells: list[bytes]) -> list[bytes]:
        return [*cells, own_cell(directory, 0, b"more")]

    def alter(directory: Directory, cells: list[bytes]) -> list[bytes]:
        return [own_cell(directory, address_of(cells[0]).node, ROWS), *cells[1:]]

    for change, error in (
        (lose, "messages came to denoiser"),
        (stuff, "messages came to denoiser"),
        (alter, "was not received as it was sent"),  # its sender finds out
    ):
        with monkeypatch.context() as patch:
            changed_by_last_mix(patch, change)
            with pytest.raises(ProtocolError, match=error):
                run_of(routed("real"))
    monkeypatch.setattr(SentCells, "require_received", lambda *_, **__: None)
    changed_by_last_mix(monkeypatch, alter)
    with pytest.raises(LosslessnessError, match="the sum that the halves opened"):
        run_of(routed("real"))  # nobody finds out: the simulation went another way


def test_a_round_is_one_batch_however_its_clients_are_submitted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = noted_at_first_mix(monkeypatch)
    collector = routed_collector("real")
    session = collector.open(
        round_=1, participants=np.arange(N_CLIENTS), wire=Wire(meter=Meter(N_CLIENTS))
    )
    for client in session.order:  # one client at a time
        values = collector.codec.encode(np.full((1, RANK), 0.5))
        row = RowBlock(indptr=np.array([0, 1]), rows=np.array([3], dtype=np.int32), values=values)
        session.submit(np.array([client]), row, ~session.exempt(np.array([client])))
    session.close()
    assert [len(sizes) for sizes in batches] == [
        int(np.count_nonzero(~collector.binding.is_denoiser))
    ]


@pytest.mark.claim("routing-batches")
@pytest.mark.parametrize("execution", ["simulated", "real"])
def test_a_batch_of_one_sender_is_refused(execution: str) -> None:
    collector = routed_collector(execution)
    denoisers = collector.binding.denoisers
    ordinary = np.flatnonzero(~collector.binding.is_denoiser)
    wire = Wire(meter=Meter(N_CLIENTS))
    with pytest.raises(ProtocolError, match="1 client sends through the mixes, at least 2 must"):
        collector.open(round_=1, participants=np.append(denoisers, ordinary[:1]), wire=wire)
    for enough in (0, 2):  # nobody sends, or two do
        clients = np.append(denoisers, ordinary[:enough])
        collector.open(round_=1, participants=clients, wire=wire)


def test_noise_arrives_without_its_sender() -> None:
    run = run_of(routed("real"))
    truth = run.truth.columns(1, f"{Step.NOISE.name.lower()}-origins")
    assert truth is not None  # kept for scoring, in no view


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"execution": "fast"}, "protection.execution"),
        ({"kem": "rsa"}, "protection.kem"),
        ({"layers": 0}, "protection.layers"),
        ({"cell_bytes": 10}, "protection.cell_bytes"),
    ],
)
def test_settings_out_of_range_name_their_key(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        RoutingLayerConfig(**settings)
    assert refused.value.key == key


def test_a_collector_that_lacks_a_part_is_refused_by_name() -> None:
    """Not with an AttributeError somewhere in a round."""

    class Bare:
        n_clients = 4
        model_hidden_from = ()

    with pytest.raises(ConfigError) as refused:
        Stack(codec=FixedPoint(), cloak=None, collector=Bare(), n_clients=4)  # type: ignore[arg-type]
    assert str(refused.value) == (
        "collector = 'Bare': does not have codec, withstands, participants, open, traffic, "
        "describe of secure_fedrec.protection.Collector"
    )


def built(*layers: str) -> Stack:
    streams, codec = Streams.from_seed(3), FixedPoint()
    return build_stack(settings_of(layers), sizes=SIZES, codec=codec, streams=streams)


def test_halves_are_of_the_collector_that_they_were_made_for() -> None:
    """Found by attacking: a stack that said masks, on hosts that sent rows in clear."""
    plain, masked = built(), built("masking")
    assert type(hosting_of(plain)) is not type(hosting_of(masked))
    for stack in (
        replace(plain, collector=masked.collector),
        replace(masked, collector=plain.collector),
    ):
        with pytest.raises(ConfigError, match="embedded engine only"):
            hosting_of(stack)


class InOthersNames(PMF):
    """Clients whose uploads say that they are others'."""

    names: Any = None

    def client_step(self, *given: Any) -> Any:
        return OthersStep(super().client_step(*given), self.names)


class OthersStep:
    def __init__(self, step: Any, names: Any) -> None:
        self._step = step
        self.upload = replace(step.upload, clients=names(step.clients))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._step, name)


@pytest.mark.parametrize(
    "names",
    [lambda own: own[::-1], np.zeros_like, lambda own: own + 1],
    ids=["swapped", "one's", "the next one's"],
)
@pytest.mark.parametrize("layers", [(), ("masking",), ("denoisers",)], ids=" + ".join)
def test_an_upload_in_others_names_is_refused(layers: tuple[str, ...], names: Any) -> None:
    """Found by attacking: such a step was summed, and a property of losslessness passed it."""
    algorithm, streams = InOthersNames(PMFConfig.printed(rank=RANK, rounds=1)), Streams.from_seed(3)
    algorithm.names = names
    run = RecordedRun(
        algorithm=algorithm,
        stack=built(*layers),
        problem=rating_problem(algorithm, TABLE),
        streams=streams,
        policy=RecordingPolicy(),
    )
    with pytest.raises(ProtocolError, match="in the names of other clients"):
        run.run_round()
