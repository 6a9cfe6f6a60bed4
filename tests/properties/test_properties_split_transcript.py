"""Private parameters that stay home are in no message."""

import struct

import pytest
import torch

from secure_fedrec.algorithms.local_settings import LocalTrainingConfig
from secure_fedrec.properties import compare_split
from secure_fedrec.properties.split.aggregation import Aggregator, federated_averaging, keep_local
from secure_fedrec.properties.split.device_messages import SERVER, SplitMessage, decode, encode
from secure_fedrec.properties.split.kept_home import KeptHome
from secure_fedrec.properties.split.model import SplitModel, matches
from secure_fedrec.properties.split.training import LocalRuns
from secure_fedrec.streams import Streams
from tests.properties.split_zoo import FAMILIES, Case, Shape

SHAPE = Shape(users=4)
SIZES = (3, 4, 5, 2)
TRAINING = LocalTrainingConfig(
    optimizer="momentum", learning_rate=0.05, batch_size=2, keep_state=True
)
RULES = pytest.mark.parametrize("rule", [federated_averaging, keep_local], ids=["z_i", "1"])


def content(message: SplitMessage) -> bytes:
    """Every byte of a message."""
    numbers = [
        struct.pack("<qd", user, value)
        for user, summary in sorted(message.summaries.items())
        for _, value in sorted(summary.items())
    ]
    return message.payload + b"".join(numbers)


def messages(
    found: Case, cohorts: list[tuple[int, ...]], rule: Aggregator
) -> tuple[SplitMessage, ...]:
    outcome = compare_split(
        found.model,
        found.loss,
        private=found.private,
        data=found.data(SIZES, seed=3),
        cohorts=cohorts,
        training=TRAINING,
        aggregate=rule,
    )
    assert outcome.holds
    return outcome.messages


def moved(found: Case, user: int) -> Case:
    """The same, with other private values of a user."""
    split = SplitModel(found.model, found.private)
    values = split.private_values(user)
    split.load_private(user, {name: value + 1 for name, value in values.items()})
    return found


@RULES
@pytest.mark.parametrize("name", FAMILIES)
def test_private_values_of_a_user_who_is_absent_change_no_byte(name: str, rule: Aggregator) -> None:
    cohorts = [(0, 2, 3), (2,), (0, 3)]
    sent = messages(FAMILIES[name](SHAPE), cohorts, rule)
    other = messages(moved(FAMILIES[name](SHAPE), user=1), cohorts, rule)
    assert [content(each) for each in sent] == [content(each) for each in other]
    assert sent == other
    # The test can see a byte: what a participant trains depends on its private values.
    control = messages(moved(FAMILIES[name](SHAPE), user=2), cohorts, rule)
    assert sent != control
    assert all(
        same == again
        for same, again in zip(sent, control, strict=True)
        if same.round == 1 and same.sender != 2
    )


@RULES
@pytest.mark.parametrize("name", FAMILIES)
def test_messages_hold_federated_parameters_and_counts_and_no_more(
    name: str, rule: Aggregator
) -> None:
    found = FAMILIES[name](SHAPE)
    split = SplitModel(found.model, found.private)
    federated = split.federated_values()
    size = sum(value.numel() * value.element_size() for value in federated.values())
    for message in messages(found, [(0, 1, 3), (1, 2)], rule):
        assert not any(matches(each, found.private) for each in message.names)
        if message.sender == SERVER and message.summaries:  # what z_i needs
            assert (message.names, message.payload) == ((), b"")
        else:
            assert message.names == split.federated
            assert len(message.payload) == size
        if message.sender != SERVER:
            assert message.summaries == {message.sender: {"examples": SIZES[message.sender]}}
        assert len(content(message)) == len(message.payload) + 16 * len(message.summaries)


@pytest.mark.claim("private-parameters-stay")
@RULES
@pytest.mark.parametrize("name", FAMILIES)
def test_no_private_value_ever_stands_in_a_message(name: str, rule: Aggregator) -> None:
    found = FAMILIES[name](SHAPE)
    split = SplitModel(found.model, found.private)
    generator = torch.Generator().manual_seed(5)
    with split.preserved():
        for user in range(split.n_users):  # values that could not be there by chance
            old = split.private_values(user)
            split.load_private(
                user,
                {n: torch.rand(v.shape, generator=generator) + 1.5 for n, v in old.items()},
            )
        streams = Streams.from_seed(9)
        data = found.data(SIZES, seed=3)
        run = KeptHome(LocalRuns(split, found.loss, data, TRAINING, streams), split.state(), rule)
        secrets: set[bytes] = set()
        for round_, cohort in enumerate([(0, 1, 2, 3), (1, 3)], start=1):
            run.run_round(round_, cohort)
            secrets |= {value for user in cohort for value in words(run, user)}
    assert len(secrets) >= 6
    for message in run.messages:
        sent = content(message)
        assert not any(secret in sent for secret in secrets)
    # The search finds what is there: had a device sent its private values, it would have shown.
    assert all(secret in encode(run.devices[1].private) for secret in words(run, 1))


def words(run: KeptHome, user: int) -> set[bytes]:
    """The private floats of a device, as bytes; no special ones, which may be anywhere."""
    values = torch.cat([value.reshape(-1) for value in run.devices[user].private.values()])
    return {value.tobytes() for value in values.numpy() if value not in (0.0, 1.0)}


def test_tensors_travel_as_their_bytes() -> None:
    values = {
        "a": torch.tensor([[1.5, -0.0], [float("nan"), float("inf")]]),
        "b": torch.tensor(7, dtype=torch.int64),
        "c": torch.zeros(0),
        "d": torch.tensor([0.1], dtype=torch.bfloat16),
        "e": torch.arange(6, dtype=torch.float64).reshape(2, 3).T,
    }
    payload = encode(values)
    assert len(payload) == 16 + 8 + 0 + 2 + 48
    again = decode(payload, values)
    assert encode(again) == payload
    assert [again[name].shape for name in values] == [value.shape for value in values.values()]
    with pytest.raises(ValueError, match="a payload of 74 bytes is due, got 73"):
        decode(payload[:-1], values)
