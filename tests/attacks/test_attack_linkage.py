"""The join of anonymous noise messages with uploads under names."""

from collections.abc import Callable

import numpy as np
import pytest

from attacks import Claims, Finding, GroundTruth, NotApplicable, evaluate
from attacks.families.linkage import CollusionLinkage, fingerprints
from attacks.scoring.links import LinkClaim
from secure_fedrec.core.arrays import IntArray, WordArray
from secure_fedrec.engines import RecordedRun
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.protection import RandomizedResponseConfig, VirtualRatingsConfig
from secure_fedrec.wire import Adversary, Transcript, Truth
from secure_fedrec.wire.spool import Columns
from tests.attacks.made import predicted_of, rated_of

Federate = Callable[..., tuple[RecordedRun, GroundTruth]]
Edit = Callable[[int, str, Columns], Columns | None]
Rewritten = Callable[[Transcript, Edit], Transcript]

RHO_1 = VirtualRatingsConfig(rho=1.0)


def claims_of(transcript: Transcript, adversary: Adversary) -> Claims:
    claims = CollusionLinkage().run(transcript.view(adversary))
    assert isinstance(claims, Claims)
    return claims


def link_of(claims: Claims) -> LinkClaim:
    (link,) = claims.of(LinkClaim)
    return link


def senders_of(truth: Truth, round_: int, tags: WordArray) -> IntArray:
    columns = truth.columns(round_, "noise-origins")
    assert columns is not None
    by_tag = dict(zip(columns["tags"].tolist(), columns["clients"].tolist(), strict=True))
    return np.array([by_tag[tag] for tag in tags.tolist()], dtype=np.int64)


def rerandomised(round_: int, name: str, columns: Columns) -> Columns:
    """Noise messages whose words share nothing with the uploads; the items stay."""
    if name == "noise" and "values" in columns:
        rng = np.random.default_rng(round_)
        shape, dtype = columns["values"].shape, columns["values"].dtype
        columns["values"] = rng.integers(0, 2**32, size=shape, dtype=np.uint64).astype(dtype)
    return columns


def without_payloads(round_: int, name: str, columns: Columns) -> Columns:
    del round_, name
    columns.pop("values", None)
    return columns


def share(finding: Finding, name: str) -> float:
    value = finding.figures[name]
    assert value is not None
    return value


# --- by value -------------------------------------------------------------------------------------


@pytest.mark.parametrize("eta", [1, 10, 30])
@pytest.mark.parametrize("rho", [1.0, 3.0])
@pytest.mark.parametrize(
    "codec", [FixedPoint(), FixedPoint(bits=32, fraction_bits=20, clip=16.0)], ids=["64", "32"]
)
def test_every_message_is_linked_by_value(
    federate: Federate, coalition: Adversary, eta: int, rho: float, codec: FixedPoint
) -> None:
    run, truth = federate(cloak=VirtualRatingsConfig(rho=rho), denoisers=eta, codec=codec)
    link = link_of(claims_of(run.transcript, coalition))
    assert len(link.tags) == truth.ratings.n_clients - eta
    expected = senders_of(truth.recorded, 1, link.tags)
    np.testing.assert_array_equal(link.guesses["value"], expected)
    np.testing.assert_array_equal(link.fits["value"].candidates, 1)
    finding = evaluate(CollusionLinkage(), coalition, run.transcript, truth, seed=0)
    assert finding.figures["linked_by_value_share"] == 1.0
    assert finding.figures["linked_share"] == 1.0


def test_what_is_left_of_a_linked_upload_is_the_rated_set(
    federate: Federate, coalition: Adversary
) -> None:
    run, truth = federate(cloak=RHO_1, denoisers=10)
    finding = evaluate(CollusionLinkage(), coalition, run.transcript, truth, seed=0)
    for name in ("auc", "support_auc", "precision", "recall", "exact_set_share", "unmasked_share"):
        assert finding.figures[name] == 1.0
    assert finding.figures["wrongly_unmasked_share"] == 0.0
    assert finding.units["clients"] == 50  # denoisers are on the adversary's side


def test_randomized_responses_are_linked_too(federate: Federate, coalition: Adversary) -> None:
    run, truth = federate(cloak=RandomizedResponseConfig(), denoisers=10)
    link = link_of(claims_of(run.transcript, coalition))
    expected = senders_of(truth.recorded, 1, link.tags)
    np.testing.assert_array_equal(link.guesses["value"], expected)
    finding = evaluate(CollusionLinkage(), coalition, run.transcript, truth, seed=0)
    assert finding.figures["linked_by_value_share"] == 1.0
    assert finding.figures["precision"] == 1.0
    # The sizes of randomized responses follow no rule: size adds next to nothing to the set.
    assert share(finding, "linked_by_set_and_size_share") >= share(finding, "linked_by_set_share")


@pytest.mark.parametrize("at_once", [1, 40])
def test_messages_are_looked_up_block_by_block(
    federate: Federate, coalition: Adversary, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = federate(cloak=RHO_1, denoisers=10)
    whole = link_of(claims_of(run.transcript, coalition)).fits["value"]
    monkeypatch.setattr("attacks.families.containment._PAIRS_AT_ONCE", at_once)
    found = link_of(claims_of(run.transcript, coalition)).fits["value"]
    assert len(whole.messages) == 50
    np.testing.assert_array_equal(found.messages, whole.messages)
    np.testing.assert_array_equal(found.places, whole.places)


# --- by set ---------------------------------------------------------------------------------------


def test_candidates_by_set_are_the_uploads_that_contain_the_message(
    federate: Federate, coalition: Adversary
) -> None:
    """Against brute force, and the true sender is always among them."""
    run, truth = federate(cloak=VirtualRatingsConfig(rho=3.0), denoisers=10)
    link = link_of(claims_of(run.transcript, coalition))
    expected = senders_of(truth.recorded, 1, link.tags)
    (upload,) = run.transcript._store.read(1, "upload")
    (noise,) = run.transcript._store.read(1, "noise")
    sent = np.split(upload["rows"], np.cumsum(upload["lengths"])[:-1])
    uploads = {
        int(client): set(rows.tolist())
        for client, rows in zip(upload["senders"], sent, strict=True)
    }
    heard = np.split(noise["rows"], np.cumsum(noise["lengths"])[:-1])
    bundles = {int(tag): set(rows.tolist()) for tag, rows in zip(noise["tags"], heard, strict=True)}
    several = 0
    for k, tag in enumerate(link.tags.tolist()):
        fits = [client for client, rows in uploads.items() if bundles[tag] <= rows]
        assert expected[k] in fits
        assert link.fits["set"].candidates[k] == len(fits)
        assert link.guesses["set"][k] == (fits[0] if len(fits) == 1 else -1)
        several += len(fits) > 1
    assert several  # at rho = 3 the whole-catalogue uploads contain everybody's messages
    sized = link.guesses["set_and_size"]
    assert np.mean(sized == expected) > np.mean(link.guesses["set"] == expected)
    assert np.all((sized == expected) | (sized == -1) | (link.fits["set"].candidates > 1))


def test_the_size_rule_follows_rho(federate: Federate, coalition: Adversary) -> None:
    """At rho = 1 an upload is twice its message; a wrong rho would leave nobody."""
    run, truth = federate(cloak=RHO_1, denoisers=10)
    link = link_of(claims_of(run.transcript, coalition))
    expected = senders_of(truth.recorded, 1, link.tags)
    assert np.mean(link.guesses["set_and_size"] == expected) >= 0.98
    protection = dict(run.transcript.public["protection"])
    protection["traits"] = {**protection["traits"], "ratio": 2.5}
    believed = Transcript(
        run.transcript._store, {**run.transcript.public, "protection": protection}
    )
    misled = link_of(claims_of(believed, coalition))
    assert np.mean(misled.guesses["set_and_size"] == expected) < 0.2


def test_fresh_values_on_the_anonymous_channel_leave_the_link_by_set(
    federate: Federate, coalition: Adversary, rewritten: Rewritten
) -> None:
    run, truth = federate(cloak=RHO_1, denoisers=10)
    changed = rewritten(run.transcript, rerandomised)
    link = link_of(claims_of(changed, coalition))
    np.testing.assert_array_equal(link.guesses["value"], -1)
    np.testing.assert_array_equal(link.fits["value"].candidates, 0)
    before = link_of(claims_of(run.transcript, coalition))
    for kind in ("set", "set_and_size"):
        np.testing.assert_array_equal(link.guesses[kind], before.guesses[kind])
    finding = evaluate(CollusionLinkage(), coalition, changed, truth, seed=0)
    assert finding.figures["linked_by_value_share"] == 0.0
    assert share(finding, "linked_by_set_share") > 0.85
    assert finding.figures["linked_share"] == finding.figures["linked_by_set_and_size_share"]
    # The rated sets are read off the links that are left.
    assert share(finding, "precision") > 0.95
    assert share(finding, "unmasked_share") > 0.9


def test_one_changed_bit_breaks_the_link_of_that_message_alone(
    federate: Federate, coalition: Adversary, rewritten: Rewritten
) -> None:
    run, _ = federate(cloak=RHO_1, denoisers=10)
    (noise,) = run.transcript._store.read(1, "noise")
    struck = noise["tags"][3]

    def flip(round_: int, name: str, columns: Columns) -> Columns:
        del round_
        if name == "noise":
            columns["values"][columns["lengths"][:3].sum(), 0] ^= np.uint64(1)
        return columns

    link = link_of(claims_of(rewritten(run.transcript, flip), coalition))
    np.testing.assert_array_equal(link.tags[link.guesses["value"] < 0], [struck])


def test_item_numbers_alone_suffice(
    federate: Federate, coalition: Adversary, rewritten: Rewritten
) -> None:
    run, truth = federate(cloak=RHO_1, denoisers=10)
    bare = rewritten(run.transcript, without_payloads)
    claims = claims_of(bare, coalition)
    assert set(link_of(claims).guesses) == {"set", "set_and_size"}
    finding = evaluate(CollusionLinkage(), coalition, bare, truth, seed=0)
    assert share(finding, "linked_share") >= 0.98
    assert share(finding, "precision") >= 0.98


# --- who sees what --------------------------------------------------------------------------------


def test_a_single_denoiser_links_its_own_messages_only(
    federate: Federate, coalition: Adversary
) -> None:
    run, truth = federate(cloak=RHO_1, denoisers=10)
    one = Adversary(name="one", corrupt=frozenset({"server", "denoiser:4"}))
    link = link_of(claims_of(run.transcript, one))
    (noise,) = run.transcript._store.read(1, "noise")
    mine = np.sort(noise["tags"][noise["receivers"] == 4])
    np.testing.assert_array_equal(np.sort(link.tags), mine)
    assert 0 < len(mine) < len(link_of(claims_of(run.transcript, coalition)).tags)
    expected = senders_of(truth.recorded, 1, link.tags)
    np.testing.assert_array_equal(link.guesses["value"], expected)
    claims = claims_of(run.transcript, one)
    named = rated_of(claims).clients[predicted_of(claims).any(axis=1)]
    np.testing.assert_array_equal(named, np.sort(expected))
    # Everybody else's upload is as opaque as before.
    others = ~np.isin(rated_of(claims).clients, expected)
    np.testing.assert_array_equal(
        rated_of(claims).scores[others],
        rated_of(claims).visible[others].astype(np.float64),
    )


def test_without_virtual_rows_there_is_nothing_to_link(
    federate: Federate, coalition: Adversary
) -> None:
    run, _ = federate(cloak=VirtualRatingsConfig(rho=0.0), denoisers=10)
    claims = CollusionLinkage().run(run.transcript.view(coalition))
    assert isinstance(claims, NotApplicable)
    assert "there are no virtual rows" in claims.reason


@pytest.mark.parametrize(
    ("corrupt", "denoisers", "match"),
    [
        ({"server"}, 10, "no noise messages"),
        ({"denoisers"}, 10, "no uploads"),
        ({"server", "denoisers"}, 0, "no round has both"),
        # A client's own message is anonymous even in its own view of the channel.
        ({"server", "client:3"}, 10, "no noise messages"),
    ],
    ids=["server", "denoisers", "no-denoisers", "server-and-client"],
)
def test_a_view_with_half_of_the_messages_is_not_applicable(
    federate: Federate, corrupt: set[str], denoisers: int, match: str
) -> None:
    run, _ = federate(cloak=RHO_1, denoisers=denoisers)
    adversary = Adversary(name="half", corrupt=frozenset(corrupt))
    claims = CollusionLinkage().run(run.transcript.view(adversary))
    assert isinstance(claims, NotApplicable)
    assert match in claims.reason


# --- fingerprints ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "codec", [FixedPoint(), FixedPoint(bits=32, fraction_bits=12, clip=64.0)], ids=["64", "32"]
)
def test_the_fingerprint_of_a_sum_is_the_sum_of_fingerprints(codec: FixedPoint) -> None:
    rng = np.random.default_rng(1)
    rows = codec.encode(rng.uniform(-9, 9, (40, 5)))
    total = rows.sum(axis=0, dtype=codec.dtype)[None, :]
    added = fingerprints(rows, codec).sum(dtype=np.uint64)
    assert fingerprints(total, codec)[0] == added
    taken_off = (rows[0] - rows[1])[None, :]
    difference = fingerprints(rows[:1], codec) - fingerprints(rows[1:2], codec)
    np.testing.assert_array_equal(fingerprints(taken_off, codec), difference)
    assert len(np.unique(fingerprints(rows, codec))) == len(rows)
