"""Bags by configuration: stacks of the table are built, others are refused with the choices."""

from dataclasses import replace
from typing import Any

import pytest

from secure_fedrec.engines import projected_transcript_bytes
from secure_fedrec.errors import ConfigError, LosslessnessError, ProtocolError, WireError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.properties import compare_runs
from secure_fedrec.protection import (
    BAG_LAYERS,
    BAG_STACKS,
    BagShape,
    VirtualRatings,
    VirtualRatingsConfig,
    build_stack,
    require_bags_compatible,
)
from secure_fedrec.protection.bags import LayeredBags
from secure_fedrec.protection.bags import mixes as mixed
from secure_fedrec.protection.masking.layer_settings import MaskingLayerConfig
from secure_fedrec.protection.paillier.config import EncryptionLayerConfig
from secure_fedrec.protection.routing import Directory
from secure_fedrec.streams import Streams
from secure_fedrec.uploads import SetBlock
from secure_fedrec.wire import RecordingPolicy, encode_set
from tests.mix_network import changed_by_last_mix, noted_at_first_mix


def layers_of(drafts: Any, stack: tuple[str, ...]) -> dict[str, Any]:
    made = {**drafts.noise(), **drafts.mixes()}
    return {name: made[name] for name in stack}


@pytest.mark.parametrize("stack", BAG_STACKS, ids=lambda stack: " + ".join(stack) or "none")
def test_every_stack_of_the_table_runs_and_is_lossless_where_it_says_so(
    drafts: Any, stack: tuple[str, ...]
) -> None:
    run, plain = drafts.run(layers_of(drafts, stack)), drafts.run({})
    for each in (run, plain):
        each.run_round()
    assert tuple(run.transcript.public["protection"]["bags"]["layers"]) == stack
    assert set(stack) <= set(BAG_LAYERS)
    assert (run.table_digests == plain.table_digests) == BAG_STACKS[stack].lossless


@pytest.mark.parametrize("stack", BAG_STACKS, ids=lambda stack: " + ".join(stack) or "none")
def test_a_stack_over_bags_equals_its_twin_where_it_says_so(
    drafts: Any, stack: tuple[str, ...]
) -> None:
    outcome = compare_runs(
        algorithm=drafts.algorithm,
        stack=drafts.stack(layers_of(drafts, stack)),
        problem=drafts.problem,
        streams=drafts.streams,
        rounds=2,
    )
    assert outcome.holds == BAG_STACKS[stack].lossless
    assert outcome.taken == drafts.n_clients * outcome.rounds
    if not outcome.holds:
        assert outcome.first_difference is not None
        assert outcome.first_difference.startswith("round 1, bag users, vector 0")


@pytest.mark.parametrize(
    ("stack", "problem"),
    [
        (("masking",), "hides what is summed"),
        (("paillier",), "hides what is summed"),
        (("local-dp", "masking"), "hides what is summed"),
        (("routing", "local-dp"), "do not stack over bags"),
        (("denoisers",), "do not stack over bags"),
        (("virtual-ratings",), "do not stack over bags"),
    ],
    ids=lambda case: " + ".join(case) if isinstance(case, tuple) else "",
)
def test_other_stacks_are_refused_with_the_choices(stack: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        require_bags_compatible(stack)
    assert refused.value.key == "bag_protection"
    assert refused.value.choices == ("none", "local-dp", "routing", "local-dp + routing")


def test_masks_over_a_bag_are_refused_when_a_stack_is_built(drafts: Any) -> None:
    with pytest.raises(ConfigError, match="hides what is summed"):
        drafts.stack({"masking": MaskingLayerConfig()})


def test_rows_may_be_masked_beside_a_routed_bag(drafts: Any) -> None:
    masked = MaskingLayerConfig(min_survivors=3)
    run, plain = drafts.run(drafts.mixes(), masking=masked), drafts.run({})
    for each in (run, plain):
        each.run_round()
    assert run.table_digests == plain.table_digests
    known = run.transcript.public["protection"]
    assert known["layers"] == ["masking"]
    assert known["bags"]["layers"] == ["routing"]
    assert known["bags"]["sizes"]["users"] == {"width": 2, "most": 4}


def test_layers_without_a_bag_are_refused(drafts: Any) -> None:
    with pytest.raises(ConfigError, match="gives to no bag"):
        build_stack(
            {},
            sizes=drafts.sizes(bags={}),
            codec=FixedPoint(),
            streams=Streams.from_seed(1),
            bag_layers=drafts.mixes(),
        )


def test_an_upload_with_bags_needs_a_channel(drafts: Any) -> None:
    run = drafts.run({})
    run.engine.stack = replace(run.engine.stack, bags=None)
    with pytest.raises(ConfigError, match=r"'users', 'users-2'.* no channel for these bags"):
        run.run_round()


def test_an_upload_without_bags_is_refused_where_they_are_due(drafts: Any) -> None:
    run = drafts.run({})
    channel = bags_with(drafts, {**drafts.bags, "more": BagShape(width=1, most=1)})
    run.engine.stack = replace(run.engine.stack, bags=channel)
    with pytest.raises(WireError, match=r"\['more', 'users', 'users-2'\] were due"):
        run.run_round()
    assert run.completed == 0


def bags_with(drafts: Any, bags: Any, **changes: Any) -> LayeredBags:
    fields = {"n_clients": drafts.n_clients, "codec": FixedPoint(), "streams": drafts.streams}
    return LayeredBags(bags=bags, **{**fields, **changes})


def test_the_parts_of_a_stack_agree(drafts: Any) -> None:
    stack = drafts.stack({})
    narrow = FixedPoint(bits=32, fraction_bits=8, clip=16.0)
    with pytest.raises(ConfigError, match="differs from the ring of the bags"):
        replace(stack, bags=bags_with(drafts, drafts.bags, codec=narrow))
    with pytest.raises(ConfigError, match="the bags have 7"):
        replace(stack, bags=bags_with(drafts, drafts.bags, n_clients=7))
    cloak = VirtualRatings(VirtualRatingsConfig(), n_items=1, streams=drafts.streams)
    with pytest.raises(ConfigError, match="'virtual-ratings': covers rows"):
        replace(stack, cloak=cloak)


def test_clients_that_keep_the_state_cannot_leave_bags_to_the_server(drafts: Any) -> None:
    held = EncryptionLayerConfig(holder="clients", min_survivors=3)
    with pytest.raises(ConfigError, match="keep the public state from the server"):
        drafts.stack({}, paillier=held)


@pytest.mark.parametrize("bags", [{}, {f"b{n}": BagShape(width=1, most=1) for n in range(257)}])
def test_a_message_can_number_its_bag(drafts: Any, bags: Any) -> None:
    with pytest.raises(ConfigError, match="between 1 and 256"):
        bags_with(drafts, bags)


@pytest.mark.parametrize(
    "shape", [{"width": 0}, {"width": 2**16}, {"most": 0}, {"most": 2**20 + 1}]
)
def test_shapes_out_of_range_are_refused(shape: dict[str, int]) -> None:
    with pytest.raises(ConfigError) as refused:
        BagShape(**{"width": 1, "most": 1, **shape})
    assert refused.value.key == f"bags.{next(iter(shape))}"


def test_a_name_must_be_one(drafts: Any) -> None:
    with pytest.raises(WireError, match="is not a name"):
        bags_with(drafts, {"a bag": BagShape(width=1, most=1)})


def test_a_cell_must_carry_a_vector(drafts: Any) -> None:
    with pytest.raises(ConfigError, match="must be at least") as refused:
        drafts.stack(drafts.mixes(cell_bytes=240))
    least = int(str(refused.value).rsplit("least ", maxsplit=1)[1].split()[0])
    assert drafts.stack(drafts.mixes(cell_bytes=least)).bags is not None
    with pytest.raises(ConfigError):
        drafts.stack(drafts.mixes(cell_bytes=least - 1))


def test_the_smallest_cell_carries_the_widest_vector_in_earnest(drafts: Any) -> None:
    with pytest.raises(ConfigError, match="must be at least") as refused:
        drafts.stack(drafts.mixes(cell_bytes=240))
    least = int(str(refused.value).rsplit("least ", maxsplit=1)[1].split()[0])
    run = drafts.run(drafts.mixes("real", cell_bytes=least))
    run.run_round()
    assert len(run.engine.public.extras["users-2"]) == sum(drafts.counts)


def test_no_batch_of_the_mixes_is_one_client_s(drafts: Any) -> None:
    channel = drafts.stack(drafts.mixes()).bags
    assert channel.mixes.routing.min_batch == 2 * 8  # two clients, four cells for each bag


def test_mixes_that_lose_or_repeat_a_cell_are_caught(
    drafts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(_: Directory, cells: list[bytes]) -> list[bytes]:
        return cells[1:]

    def repeat(_: Directory, cells: list[bytes]) -> list[bytes]:
        return [*cells[1:], cells[1]]

    def alter(_: Directory, cells: list[bytes]) -> list[bytes]:
        return [bytes([*cells[0][:-1], cells[0][-1] ^ 1]), *cells[1:]]

    for change, error in (
        (lose, "were handed in"),
        (repeat, "replayed"),
        (alter, "fails authentication"),
    ):
        with monkeypatch.context() as patch:
            changed_by_last_mix(patch, change)
            run = drafts.run(drafts.mixes("real"))
            with pytest.raises(ProtocolError, match=error):
                run.run_round()
            assert run.completed == 0


def test_mixes_that_bring_another_vector_are_caught(
    drafts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    genuine = encode_set

    def changed(block: SetBlock, **header: Any) -> bytes:
        data = genuine(block, **header)
        return data[:-1] + bytes([data[-1] ^ 1])

    monkeypatch.setattr(mixed, "encode_set", changed)
    with pytest.raises(LosslessnessError, match="the mixes changed or lost a vector"):
        drafts.run(drafts.mixes("real")).run_round()


def test_a_round_is_one_batch_with_the_public_number_of_cells(
    drafts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches = noted_at_first_mix(monkeypatch)
    run = drafts.run(drafts.mixes("real"))
    run.engine._batch_bytes = 1
    run.run_round()
    (sizes,) = batches
    assert len(sizes) == drafts.n_clients * 8
    assert set(sizes) == {512}


def test_a_projection_counts_vectors_and_cells(drafts: Any) -> None:
    def projected(stack: Any) -> int:
        algorithm = drafts.run({}).engine.algorithm
        policy = RecordingPolicy(payload_rounds=(1,))
        return projected_transcript_bytes(algorithm, stack, drafts.problem(), policy)

    bare = replace(drafts.stack({}), bags=None)
    named, routed = projected(drafts.stack({})), projected(drafts.stack(drafts.mixes()))
    vectors = drafts.n_clients * 4 * 8 * (2 + 3)
    assert named - projected(bare) >= vectors
    assert routed - named == 3 * 40 * drafts.n_clients * (8 - 2)  # messages of three rounds
