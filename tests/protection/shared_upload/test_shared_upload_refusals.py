"""Every wrong message in every state is refused by name; nothing else is raised, nothing leaves."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from secure_fedrec.errors import (
    ConfigError,
    EncodingError,
    ProtocolError,
    SumBudgetError,
    WireError,
)
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection.session import Node, Role, Roster
from secure_fedrec.protection.shared_upload import (
    SharedUploadConfig,
    SharingClient,
    SharingDenoiser,
    SharingServer,
)
from secure_fedrec.protection.shared_upload.messages import Kind, sign

Make = Callable[..., Any]
STAGES = ("collecting", "held", "consented", "released")


def at_stage(begin: Make, stage: str, **settings_: Any) -> tuple[Any, dict[str, Any]]:
    """A round in some state, and one genuine message of every type."""
    round_ = begin(**settings_)
    number = len(round_.clients)
    shared = [round_.upload(client) for client in range(number - 1)]
    late = round_.share(number - 1, *_upload(round_))
    messages: dict[str, Any] = {
        "ADVERT": round_.denoisers[0].advertise(),
        "SHARES": shared[0].server,
        "SEED": shared[0].denoisers[0],
        "late": late,
    }
    if stage == "collecting":
        return round_, messages
    messages["HELD"] = [denoiser.hold() for denoiser in round_.denoisers]
    messages["PROPOSAL"] = round_.server.propose(messages["HELD"])
    if stage == "held":
        return round_, messages
    messages["CONSENT"] = [d.consent(messages["PROPOSAL"]) for d in round_.denoisers]
    messages["AGREEMENT"] = round_.server.agree(messages["CONSENT"])
    if stage == "consented":
        return round_, messages
    messages["SUMS"] = [d.release(messages["AGREEMENT"]) for d in round_.denoisers]
    round_.server.finish(messages["SUMS"])
    return round_, messages


def _upload(round_: Any) -> Any:
    context = round_.context
    rows = np.arange(3, dtype=np.int32)
    return rows, np.zeros((3, context.width), context.codec.dtype), np.ones(3, dtype=bool)


def test_state_by_message_table(begin: Make) -> None:
    for stage in STAGES:
        _, messages = at_stage(begin, "released")
        for party, calls in (
            ("denoisers", ("advertise", "receive", "hold", "consent", "release")),
            ("server", ("receive", "propose", "agree", "finish")),
        ):
            for call in calls:
                if (stage, call) in _ACCEPTED[party]:
                    continue
                round_, own = at_stage(begin, stage)
                target = round_.denoisers[0] if party == "denoisers" else round_.server
                every = [*messages.values(), *own.values(), b"", [], [b""] * 2]
                for argument in every:
                    if not isinstance(argument, bytes | list):
                        continue
                    if call in ("advertise", "hold"):
                        with pytest.raises(ProtocolError, match="denoiser 0 is"):
                            getattr(target, call)()
                        break
                    if isinstance(argument, list) != (call in ("propose", "agree", "finish")):
                        continue
                    with pytest.raises(ProtocolError, match=" is "):
                        getattr(target, call)(argument)


_ACCEPTED = {
    "denoisers": {
        ("collecting", "advertise"),
        ("collecting", "receive"),
        ("collecting", "hold"),
        ("held", "consent"),
        ("consented", "release"),
    },
    "server": {
        ("collecting", "receive"),
        ("collecting", "propose"),
        ("held", "agree"),
        ("consented", "finish"),
    },
}


@pytest.mark.parametrize("stage", STAGES[:3])
def test_messages_of_another_type_are_refused_where_one_is_awaited(begin: Make, stage: str) -> None:
    _, every = at_stage(begin, "released")
    singles = {
        name: (value[0] if isinstance(value, list) else value)
        for name, value in every.items()
        if name != "late"
    }
    round_, _ = at_stage(begin, stage)
    awaited = {
        "collecting": [(round_.denoisers[0].receive, "SEED"), (round_.server.receive, "SHARES")],
        "held": [(round_.denoisers[0].consent, "PROPOSAL")],
        "consented": [(round_.denoisers[0].release, "AGREEMENT")],
    }[stage]
    for call, kind in awaited:
        for name, message in singles.items():
            if name != kind:
                with pytest.raises(ProtocolError, match=f"expected {kind}, got {name}"):
                    call(message)


def test_a_client_shares_once_and_after_the_keys(begin: Make) -> None:
    round_ = begin()
    client = round_.clients[0]
    adverts = [denoiser.advertise() for denoiser in round_.denoisers]
    with pytest.raises(ProtocolError, match="waiting for the denoisers' keys"):
        client.share(*_upload(round_))
    with pytest.raises(ProtocolError, match="1 ADVERT messages of 2 denoisers"):
        client.accept(adverts[:1])
    with pytest.raises(ProtocolError, match="two ADVERT messages of denoiser 0"):
        client.accept([adverts[0], adverts[0]])
    client.accept(adverts[::-1])
    with pytest.raises(ProtocolError, match="ready to share"):
        client.accept(adverts)
    client.share(*_upload(round_))
    with pytest.raises(ProtocolError, match="is done"):
        client.share(*_upload(round_))


def test_two_denoisers_with_one_key_are_refused(begin: Make) -> None:
    round_ = begin()
    first = round_.denoisers[0].advertise()
    key = first[48:-64]
    second = sign(Kind.ADVERT, 1, key, context=round_.context, identity=round_.keys.denoisers[1])
    with pytest.raises(ProtocolError, match="advertise one key"):
        round_.clients[0].accept([first, second])
    weak = sign(
        Kind.ADVERT, 1, bytes(32), context=round_.context, identity=round_.keys.denoisers[1]
    )
    with pytest.raises(WireError, match="not a x25519 public key"):
        round_.clients[0].accept([first, weak])


@pytest.mark.parametrize(
    ("change", "error", "match"),
    [
        (lambda r, w, m: (r[::-1].copy(), w, m), WireError, "ascend"),
        (lambda r, w, m: (r + np.int32(5), w, m), WireError, "stay below"),
        (lambda r, w, m: (r - np.int32(1), w, m), WireError, "ascend"),
        (lambda r, w, m: (r.astype(np.int64), w, m), WireError, "int32"),
        (lambda r, w, m: (r, w.astype(np.uint64), m), WireError, "of this ring"),
        (lambda r, w, m: (r, w[:, :1], m), WireError, "of this ring"),
        (lambda r, w, m: (r, w[:2], m), WireError, "of this ring"),
        (lambda r, w, m: (r, w, m[:2]), WireError, "bool"),
        (lambda r, w, m: (r, w, m.astype(np.int64)), WireError, "bool"),
        (lambda r, w, m: (r, w + np.uint32(5), m), EncodingError, "beyond ring.clip"),
        (lambda r, w, m: (r, w - np.uint32(5), m), EncodingError, "beyond ring.clip"),
    ],
)
def test_unusable_rows_are_refused_before_anything_is_shared(
    begin: Make, change: Any, error: type[Exception], match: str
) -> None:
    round_ = begin()
    client = round_.clients[0]
    client.accept([denoiser.advertise() for denoiser in round_.denoisers])
    with pytest.raises(error, match=match):
        client.share(*change(*_upload(round_)))
    client.share(*_upload(round_))  # the refusal changed nothing


def test_words_outside_the_ring_are_refused(begin: Make) -> None:
    round_ = begin(bits=20)
    client = round_.clients[0]
    client.accept([denoiser.advertise() for denoiser in round_.denoisers])
    rows, words, rated = _upload(round_)
    with pytest.raises(WireError, match="outside the ring of 2\\^20"):
        client.share(rows, words + np.uint32(2**20), rated)


def test_keys_that_are_not_on_the_roster_are_refused(begin: Make) -> None:
    round_ = begin()
    keys = round_.keys
    with pytest.raises(ProtocolError, match="another key for client 1"):
        SharingClient(round_.context, 1, keys.clients[0])
    with pytest.raises(ProtocolError, match="another key for client 4"):
        SharingClient(round_.context, 4, keys.clients[0])
    with pytest.raises(ProtocolError, match="another key for denoiser 1"):
        SharingDenoiser(round_.context, 1, keys.denoisers[0])
    with pytest.raises(ProtocolError, match="another key for the server"):
        SharingServer(round_.context, keys.clients[0])


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 2},
        {"round_id": bytes([1]) + bytes(15)},
        {"floor": 3},
        {"bits": 33},
        {"n_items": 8},
        {"width": 3},
        {"kem": "mlkem768-x25519"},
    ],
)
def test_messages_of_another_round_or_setting_are_refused(
    begin: Make, changes: dict[str, Any]
) -> None:
    round_, other = begin(), begin(**changes)
    stray = other.upload(0)
    with pytest.raises(ProtocolError, match="another agreement"):
        round_.server.receive(stray.server)
    with pytest.raises(ProtocolError, match="another agreement"):
        round_.denoisers[0].receive(stray.denoisers[0])
    with pytest.raises(ProtocolError, match="another agreement"):
        round_.clients[1].accept([denoiser.advertise() for denoiser in other.denoisers])


def test_a_seed_opens_at_its_denoiser_and_in_its_round_only(begin: Make) -> None:
    round_ = begin()
    shared = round_.share(0, *_upload(round_))
    with pytest.raises(ProtocolError, match="not for denoiser 1"):
        round_.denoisers[1].receive(shared.denoisers[0])
    # The same box, renamed and signed again by its sender, still opens nowhere else.
    body = (1).to_bytes(4, "little") + shared.denoisers[0][48:-64]
    renamed = sign(Kind.SEED, 0, body, context=round_.context, identity=round_.keys.clients[0])
    with pytest.raises(ProtocolError, match="fails authentication"):
        round_.denoisers[1].receive(renamed)
    # Signed by another client: the box is bound to the client's number.
    stolen = sign(
        Kind.SEED,
        1,
        shared.denoisers[0][48:-64],
        context=round_.context,
        identity=round_.keys.clients[1],
    )
    with pytest.raises(ProtocolError, match="fails authentication"):
        round_.denoisers[0].receive(stolen)
    round_.denoisers[0].receive(shared.denoisers[0])
    # A restarted denoiser has another key: it cannot be led through the round again.
    again = SharingDenoiser(round_.context, 0, round_.keys.denoisers[0])
    with pytest.raises(ProtocolError, match="fails authentication"):
        again.receive(shared.denoisers[0])


def test_second_messages_of_a_client_are_refused(begin: Make) -> None:
    round_ = begin()
    shared = round_.upload(0)
    with pytest.raises(ProtocolError, match="client 0 sent two shares"):
        round_.server.receive(shared.server)
    with pytest.raises(ProtocolError, match="client 0 sent two seeds"):
        round_.denoisers[0].receive(shared.denoisers[0])


def test_uploads_after_the_collection_are_refused(begin: Make) -> None:
    round_, messages = at_stage(begin, "held")
    with pytest.raises(ProtocolError, match="waiting for the proposal"):
        round_.denoisers[0].receive(messages["late"].denoisers[0])
    with pytest.raises(ProtocolError, match="waiting for consents"):
        round_.server.receive(messages["late"].server)


def test_wrong_sums_of_a_denoiser_abort(begin: Make) -> None:
    round_, messages = at_stage(begin, "consented")
    sums = [denoiser.release(messages["AGREEMENT"]) for denoiser in round_.denoisers]

    def altered(place: int, change: int) -> list[bytes]:
        body = bytearray(sums[0][48:-64])
        body[place] ^= change
        identity = round_.keys.denoisers[0]
        return [sign(Kind.SUMS, 0, bytes(body), context=round_.context, identity=identity), sums[1]]

    with pytest.raises(ProtocolError, match="1 SUMS messages of 2 denoisers"):
        round_.server.finish(sums[:1])
    with pytest.raises(ProtocolError, match="two SUMS messages of denoiser 1"):
        round_.server.finish([sums[1], sums[1]])
    with pytest.raises(ProtocolError, match="exceed"):
        round_.server.finish(altered(-3, 0x80))
    with pytest.raises(ProtocolError, match="aborted"):
        round_.server.finish(sums)


def test_sums_of_other_rows_abort(begin: Make, draw_rows: Make) -> None:
    round_, messages = at_stage(begin, "consented")
    sums = [denoiser.release(messages["AGREEMENT"]) for denoiser in round_.denoisers]
    body = bytes(4)  # no rows at all
    identity = round_.keys.denoisers[1]
    none = sign(Kind.SUMS, 1, body, context=round_.context, identity=identity)
    with pytest.raises(ProtocolError, match="sums of denoiser 1 are of other rows"):
        round_.server.finish([sums[0], none])


def test_impossible_settings_are_refused(begin: Make) -> None:
    context = begin().context
    for changes, key in (
        ({"floor": 1}, "protection.floor"),
        ({"floor": 5}, "protection.floor"),
        ({"kem": "rsa"}, "protection.kem"),
        ({"round": 0}, "round"),
        ({"round_id": bytes(15)}, "round_id"),
        ({"width": 0}, "width"),
        ({"n_items": 0}, "n_items"),
    ):
        with pytest.raises(ConfigError) as refusal:
            replace(context, **changes)
        assert refusal.value.key == key
    with pytest.raises(SumBudgetError):
        replace(context, codec=FixedPoint(bits=8, fraction_bits=5, clip=1.0))
    server, denoiser, client = Node(Role.SERVER), Node(Role.DENOISER, 0), Node(Role.CLIENT, 0)
    keys = {server: b"s" * 32, denoiser: b"d" * 32, client: b"c" * 32}
    operator = Ed25519PrivateKey.generate()
    with pytest.raises(ConfigError, match="needs a denoiser"):
        replace(context, roster=Roster.of(operator, {server: b"s" * 32, client: b"c" * 32}))
    for changed in (
        {server: b"s" * 32, denoiser: b"d" * 32},
        keys | {server: bytes(31)},
        keys | {server: b"c" * 32},
    ):
        with pytest.raises(ConfigError):
            Roster.of(operator, changed)
    swapped = keys | {server: b"d" * 32, denoiser: b"s" * 32}
    assert Roster.of(operator, swapped).hash != Roster.of(operator, keys).hash
    for wrong in ({"count": 0}, {"floor": 1}, {"kem": "none"}):
        with pytest.raises(ConfigError):
            SharedUploadConfig(**wrong)
