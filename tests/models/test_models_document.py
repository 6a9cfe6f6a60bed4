"""The document model: its forms, and that a text never sees the padding of another."""

import pytest
import torch
from torch import Tensor, nn

from secure_fedrec.errors import ConfigError
from secure_fedrec.models.document import PRIVATE, DocumentModel, document_loss
from secure_fedrec.models.settings import DocumentConfig
from secure_fedrec.models.split import ParameterSplit

SIZES = {"characters": 12, "classes": 3, "user_dim": 2, "character_dim": 5, "hidden": 4, "mlp": 6}


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def build(**settings: object) -> DocumentModel:
    torch.manual_seed(3)
    return DocumentModel(DocumentConfig(**{**SIZES, **settings})).eval()  # type: ignore[arg-type]


def texts(*lengths: int, width: int = 9) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    codes = torch.randint(1, 12, (len(lengths), width), generator=generator, dtype=torch.uint8)
    length = torch.tensor(lengths)
    codes[torch.arange(width) >= length[:, None]] = 0
    return codes, length


@pytest.mark.parametrize("pooling", ["max", "mean", "last"])
def test_a_text_reads_the_same_alone_and_beside_longer_ones(pooling: str) -> None:
    model = build(pooling=pooling)
    codes, length = texts(4, 9, 1)
    together = model(codes, length)
    for row, own in enumerate(length.tolist()):
        alone = model(codes[row : row + 1, :own], length[row : row + 1])
        torch.testing.assert_close(alone[0], together[row])


@pytest.mark.parametrize("pooling", ["max", "mean", "last"])
def test_both_directions_are_those_of_a_packed_bidirectional_lstm(pooling: str) -> None:
    model = build(pooling=pooling)
    twin = nn.LSTM(SIZES["character_dim"], SIZES["hidden"], bidirectional=True, batch_first=True)
    with torch.no_grad():
        for name, value in model.forward_lstm.named_parameters():
            twin.get_parameter(name).copy_(value)
            twin.get_parameter(f"{name}_reverse").copy_(model.backward_lstm.get_parameter(name))
    codes, length = texts(4, 9, 1)
    vectors = model.character_embedding(codes.long())
    for row, own in enumerate(length.tolist()):
        outputs, (last, _) = twin(vectors[row : row + 1, :own])
        expected = {
            "max": outputs[0].amax(0),
            "mean": outputs[0].mean(0),
            "last": last[:, 0].reshape(-1),
        }
        torch.testing.assert_close(model.encode(codes, length)[row], expected[pooling])


def test_the_personal_form_depends_on_the_user_and_the_global_one_has_none() -> None:
    codes, length = texts(5, 6)
    personal, everybody = build(users=2, user_init="normal"), build(user_dim=0)
    one = personal(codes, length, torch.tensor([0, 0]))
    other = personal(codes, length, torch.tensor([1, 1]))
    assert not torch.equal(one, other)
    torch.testing.assert_close(personal(codes, length), one)  # on a device: row 0
    assert not any("user" in name for name, _ in everybody.named_parameters())
    assert everybody(codes, length).shape == (2, 3)


def test_the_user_only_form_does_not_read_the_text() -> None:
    model = build(text=False, user_init="normal")
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {
        "user_embedding",
        "hidden",
        "output",
    }
    one = model(*texts(5, 6))
    other = model(*texts(3, 2))
    assert torch.equal(one, other)


def test_only_the_user_embedding_is_private_and_starts_at_the_default() -> None:
    split = ParameterSplit.of(build(), private=PRIVATE)
    assert [segment.name for segment in split.private] == ["user_embedding.weight"]
    assert not build().user_embedding.weight.any()
    assert build(user_init="normal").user_embedding.weight.all()


def test_federated_parameters_have_the_same_places_for_one_user_and_for_many() -> None:
    device = ParameterSplit.of(build(), private=PRIVATE)
    server = ParameterSplit.of(build(users=7), private=PRIVATE)
    assert device.federated == server.federated
    assert server.n_private == 7 * device.n_private


def test_the_loss_is_the_mean_cross_entropy() -> None:
    model = build(users=2, user_init="normal")
    codes, length = texts(5, 6)
    label, user = torch.tensor([2, 0]), torch.tensor([1, 0])
    scores = torch.log_softmax(model(codes, length, user), dim=1)
    batch = {"text": codes, "length": length, "label": label, "user": user}
    expected = -(scores[0, 2] + scores[1, 0]) / 2
    torch.testing.assert_close(document_loss(model, batch), expected)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("characters", 1),
        ("classes", 1),
        ("user_dim", -1),
        ("users", 0),
        ("hidden", 0),
        ("mlp", 0),
        ("dropout", 1.0),
        ("dropout", -0.1),
        ("pooling", "sum"),
        ("user_init", "one"),
    ],
)
def test_settings_out_of_range_are_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError) as refused:
        DocumentConfig(**{**SIZES, key: value})  # type: ignore[arg-type]
    assert refused.value.key == f"model.{key}"


def test_a_model_needs_a_text_or_a_user() -> None:
    with pytest.raises(ConfigError, match="needs the text"):
        build(user_dim=0, text=False)
