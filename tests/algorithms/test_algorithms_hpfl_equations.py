"""The equations of HPFL, piece by piece, against direct transcriptions."""

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans

from secure_fedrec.algorithms.hpfl.aggregation import (
    HPFLTable,
    accuracy_threshold,
    count_accuracies,
)
from secure_fedrec.algorithms.hpfl.client_update import ClientModel, judge
from secure_fedrec.algorithms.hpfl.config import HPFLConfig
from secure_fedrec.algorithms.hpfl.drafts import cluster_centres, n_clusters
from secure_fedrec.algorithms.hpfl.update import blend, general_representations
from secure_fedrec.algorithms.hpfl.upload import Selection, give_out
from secure_fedrec.core.arrays import FloatArray, IntArray
from secure_fedrec.core.kernels import scatter_add
from secure_fedrec.errors import ConfigError, EncodingError
from secure_fedrec.fixedpoint import FixedPoint
from secure_fedrec.models.gum.arrays import Records
from secure_fedrec.models.gum.model import GUM, GUMConfig
from secure_fedrec.models.gum.training import GUMTraining

K, N, CLIENTS = 4, 2, 5
CODEC = FixedPoint()


def test_equation_1_keeps_a_vector_in_proportion_to_its_accuracy() -> None:
    local, shared = np.array([[2.0, 4.0], [1.0, 1.0], [3.0, 5.0]]), np.zeros((3, 2)) + 10.0
    found = blend(local, shared, np.array([0.25, 1.0, 0.0])[:, None])
    np.testing.assert_array_equal(found, [[8.0, 8.5], [1.0, 1.0], [10.0, 10.0]])


@pytest.mark.parametrize("weights", ["farther", "nearer"])
def test_equation_2_is_the_printed_sum(weights: str) -> None:
    rng = np.random.default_rng(0)
    embeddings, centres = rng.normal(size=(6, K)), rng.normal(size=(3, K))
    found = general_representations(embeddings, centres, weights)
    for embedding, general in zip(embeddings, found, strict=True):
        distances = [float(np.linalg.norm(embedding - centre)) for centre in centres]
        factors = distances if weights == "farther" else [1 / each for each in distances]
        expected = sum(f / sum(factors) * c for f, c in zip(factors, centres, strict=True))
        np.testing.assert_allclose(general, expected, rtol=1e-12)


def test_farther_centres_weigh_more_as_printed() -> None:
    centres = np.array([[0.0], [10.0]])
    embeddings = np.array([[1.0]])
    assert general_representations(embeddings, centres)[0, 0] == pytest.approx(9.0)
    assert general_representations(embeddings, centres, "nearer")[0, 0] == pytest.approx(1.0)


def test_a_centre_at_distance_zero() -> None:
    here, elsewhere = np.array([[2.0, 2.0]]), np.array([[2.0, 2.0], [5.0, 6.0]])
    np.testing.assert_array_equal(general_representations(here, here), here)
    np.testing.assert_array_equal(general_representations(here, here, "nearer"), here)
    # Farther: all the weight is on the other centre. Nearer: none is.
    np.testing.assert_array_equal(general_representations(here, elsewhere), [[5.0, 6.0]])
    np.testing.assert_array_equal(general_representations(here, elsewhere, "nearer"), here)


def test_accuracies_are_shares_of_hits_per_attribute() -> None:
    # Items with the attributes {0}, {0, 1}, {2}, {3}; the last is not in the validation records.
    attributes = np.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]], dtype=np.bool_)
    gum = GUM(GUMConfig(link="identity"), n_users=1, attributes=attributes)
    validation = Records(
        users=np.zeros(4, dtype=np.int64),
        items=np.array([0, 0, 1, 2]),
        scores=np.array([0.0, 1.0, 0.0, 0.0]),
    )
    trained_on = np.array([5, 5, 0, 5])
    zeros = np.zeros(gum.layout.size)  # predicts 0: right on the first, third and fourth
    levels = np.array([0.0, 1.0])
    found = judge(gum, zeros, validation, attributes, trained_on, levels, HPFLConfig())
    # Attribute 2 has a hit, but was never trained on; attribute 3 has no record: the overall share.
    assert found.tolist() == [2 / 3, 1.0, 0.0, 3 / 4, 3 / 4]
    shifted = HPFLConfig(shifted_accuracies=True)
    found = judge(gum, zeros, validation, attributes, trained_on, levels, shifted)
    assert found.tolist() == [0.0, 2 / 3, 1.0, 0.0, 3 / 4]


def client(seed: int) -> ClientModel:
    rng = np.random.default_rng(seed)
    return ClientModel(
        users=rng.normal(size=(12, K)),
        items=rng.normal(size=(30, K)),
        vectors=rng.normal(size=(K, 2 * N + K)),
        hidden=rng.normal(size=N),
        accuracies=rng.random(K + 1),
    )


def iterations(seed: int) -> IntArray:
    """Attribute 3 is known to the clients 1 and 2 only, attribute 2 to nobody."""
    counts = np.random.default_rng(100 + seed).integers(50, 5000, K + 1)
    counts[2] = 0
    if seed not in {1, 2}:
        counts[3] = 0
    return counts.astype(np.int64)


def summed(config: HPFLConfig, threshold: float) -> tuple[HPFLTable, FloatArray]:
    """The decoded sum of all clients' rows, as a protection would hand it over."""
    table = HPFLTable(
        attributes=K,
        hidden=N,
        share_hidden=config.share_hidden,
        buckets=config.histogram_buckets,
    )
    ring = np.zeros((table.rows, table.width), dtype=CODEC.dtype)
    for seed in range(CLIENTS):
        selection = Selection(threshold=threshold, draw=0.3, seeds=(1, 2))
        given = give_out(client(seed), iterations(seed), config, table, selection)
        scatter_add(ring, given.rows, CODEC.encode(given.values))
    return table, CODEC.decode(ring)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.6])
def test_equation_3_formed_inside_the_sum_is_the_direct_formula(threshold: float) -> None:
    table, sums = summed(HPFLConfig(share_hidden=True), threshold)
    old = np.random.default_rng(7).normal(size=(table.rows, table.width))
    found = table.means_of(sums, old)
    for attribute in range(K):
        above: Any = 0.0
        below = 0.0
        for seed in range(CLIENTS):
            accuracy = client(seed).accuracies[attribute]
            weight = (accuracy > threshold) * iterations(seed)[attribute] * accuracy
            above = above + weight * client(seed).vectors[attribute]
            below += weight
        expected = above / below if below else old[attribute, :-1]
        np.testing.assert_allclose(found[attribute, :-1], expected, rtol=1e-6, atol=1e-7)
    weights = [client(seed).accuracies[-1] * iterations(seed)[-1] for seed in range(CLIENTS)]
    hidden = np.average([client(seed).hidden for seed in range(CLIENTS)], axis=0, weights=weights)
    np.testing.assert_allclose(found[K, :N], hidden, rtol=1e-6)


def test_an_attribute_that_nobody_has_seen_keeps_its_vector_bit_for_bit() -> None:
    table, sums = summed(HPFLConfig(), 0.0)
    assert not sums[2].any()
    old = np.random.default_rng(7).normal(size=(table.rows, table.width))
    found = table.means_of(sums, old)
    np.testing.assert_array_equal(found[2], old[2])
    assert not np.any(found[3, :-1] == old[3, :-1])


def test_rows_of_weight_zero_are_not_sent() -> None:
    table = HPFLTable(attributes=K, hidden=N, buckets=4)
    accuracies = client(1).accuracies[:K]
    threshold = float(np.sort(accuracies)[1])  # strictly above: two of four attributes
    given = give_out(
        client(1),
        iterations(1),
        HPFLConfig(buckets=4),
        table,
        Selection(threshold=threshold, draw=0.5, seeds=(0, 0)),
    )
    kept = np.flatnonzero((accuracies > threshold) & (iterations(1)[:K] > 0))
    assert given.rows.tolist() == [*kept.tolist(), K]
    assert 2 not in given.rows
    assert np.all(given.values[:-1, -1] > 0)


def test_the_weights_do_not_depend_on_their_unit() -> None:
    found = []
    for unit in (1024.0, 4096.0):
        table, sums = summed(HPFLConfig(weight_unit=unit), 0.0)
        found.append(table.means_of(sums, np.zeros((table.rows, table.width)))[:K])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6, atol=1e-7)


def test_the_stochastic_rule_compares_the_root_of_one_draw() -> None:
    accuracies = np.array([0.2, 0.4, 0.8, 0.0])
    for draw, admitted in ((0.01, [1, 1, 1, 0]), (0.2, [0, 1, 1, 0]), (0.99, [0, 0, 1, 0])):
        selection = Selection(threshold=0.9, draw=draw, seeds=(0, 0))
        assert selection.admits(accuracies, "stochastic").tolist() == [bool(a) for a in admitted]
    nothing = Selection(threshold=0.0, draw=0.5, seeds=(0, 0)).admits(np.zeros(4), "stochastic")
    assert not nothing.any()


def test_histograms_of_accuracies_add_up_in_the_sum() -> None:
    config = HPFLConfig(buckets=20)
    table, sums = summed(config, 0.5)  # the histogram counts what the threshold leaves out, too
    assert table.rows == K + 3  # 20 buckets in rows of 9
    expected = np.zeros(20)
    for seed in range(CLIENTS):
        for accuracy in client(seed).accuracies[:-1][iterations(seed)[:-1] > 0]:
            expected[int(accuracy * 20)] += 1
    np.testing.assert_array_equal(table.histogram_of(sums), expected)
    assert expected.sum() == 5 * 2 + 2


def test_accuracies_fall_into_buckets_and_one_into_the_last() -> None:
    found = count_accuracies(np.array([0.0, 0.249, 0.25, 0.99, 1.0]), 4)
    assert found.tolist() == [2, 1, 0, 2]
    assert 0.29 * 100 < 29  # and yet 0.29 is the lower edge of bucket 29
    assert count_accuracies(np.array([0.29]), 100).argmax() == 29


@pytest.mark.parametrize(
    ("quantile", "edge"), [(0.0, 0.0), (0.2, 0.2), (0.3, 0.4), (0.7, 0.4), (0.8, 0.8)]
)
def test_the_threshold_is_right_below_the_quantiles_bucket(quantile: float, edge: float) -> None:
    histogram = np.array([0.0, 3.0, 5.0, 0.0, 2.0])
    assert accuracy_threshold(histogram, quantile) == np.nextafter(edge, 0.0)
    assert accuracy_threshold(np.zeros(5), quantile) == 0.0


@pytest.mark.parametrize("buckets", [4, 20, 100])
@pytest.mark.parametrize("quantile", [0.0, 0.1, 0.9])
def test_of_equal_accuracies_all_pass(quantile: float, buckets: int) -> None:
    """Also of those on an edge, where ``accuracy * buckets`` may round to the other side."""
    for accuracy in np.append(np.arange(1, buckets) / buckets, [1 / 3, 1.0]):
        equal = np.full(6, accuracy)
        threshold = accuracy_threshold(count_accuracies(equal, buckets).astype(float), quantile)
        selection = Selection(threshold=threshold, draw=0.5, seeds=(0, 0))
        assert selection.admits(equal, "quantile").all()


def test_the_threshold_leaves_out_lower_buckets_and_no_more() -> None:
    accuracies = np.array([0.49, 0.5, 0.5, 0.5, 0.7, 0.0])
    threshold = accuracy_threshold(count_accuracies(accuracies, 20).astype(float), 0.4)
    selection = Selection(threshold=threshold, draw=0.5, seeds=(0, 0))
    assert selection.admits(accuracies, "quantile").tolist() == [False, *[True] * 4, False]


def test_without_a_quantile_every_accuracy_above_zero_passes() -> None:
    """p is of the last round: what has become worse since then passes as well."""
    threshold = accuracy_threshold(count_accuracies(np.full(6, 0.9), 20).astype(float), 0.0)
    selection = Selection(threshold=threshold, draw=0.5, seeds=(0, 0))
    now = np.array([0.0, 0.01, 0.3, 0.95])
    assert selection.admits(now, "quantile").tolist() == [False, True, True, True]


@pytest.mark.parametrize("weights", ["farther", "nearer"])
def test_equation_2_goes_through_many_embeddings_in_blocks(weights: str) -> None:
    rng = np.random.default_rng(3)
    embeddings, centres = rng.normal(size=(3000, K)), rng.normal(size=(700, K))
    embeddings[2500] = centres[5]  # at distance 0 of a centre, in a later block
    found = general_representations(embeddings, centres, weights)
    for start in (0, 1400, 2500, 2999):  # each alone
        alone = general_representations(embeddings[start : start + 1], centres, weights)
        np.testing.assert_allclose(found[start : start + 1], alone, rtol=1e-9)


@pytest.mark.filterwarnings("error")
def test_points_that_single_precision_cannot_tell_apart_share_a_cluster() -> None:
    noise = np.random.default_rng(0).normal(size=(60, K))
    points = np.concatenate([1e-12 * noise, 100 * noise, -100 * noise])
    found = cluster_centres(points, 1.0, seed=0, seeding="random")
    assert 120 < len(found) < 180
    assert np.abs(found).max(axis=1).min() < 1e-11


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_embeddings_of_a_diverged_training_are_not_clustered(value: float) -> None:
    points = np.ones((20, K))
    points[7, 2] = value
    with pytest.raises(EncodingError, match="not finite, or too large"):
        cluster_centres(points, 0.5, seed=0)


@pytest.mark.parametrize("seeding", ["k-means++", "random"])
def test_drafts_are_the_centres_of_k_means(seeding: str) -> None:
    points = np.random.default_rng(1).normal(size=(60, K))
    found = cluster_centres(points, 0.1, seed=5, seeding=seeding)
    oracle = KMeans(n_clusters=6, init=seeding, n_init=1, max_iter=100, random_state=5).fit(points)
    expected = oracle.cluster_centers_[np.lexsort(oracle.cluster_centers_.T[::-1])]
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_array_equal(found, cluster_centres(points, 0.1, seed=5, seeding=seeding))
    means = [points[oracle.labels_ == label].mean(axis=0) for label in range(6)]
    np.testing.assert_allclose(np.sort(found, axis=0), np.sort(means, axis=0), rtol=1e-9)


@pytest.mark.parametrize(
    ("points", "share", "clusters"),
    [(0, 0.1, 0), (1, 0.1, 1), (9, 0.1, 1), (29, 0.1, 2), (3, 1, 3)],
)
def test_the_number_of_clusters(points: int, share: float, clusters: int) -> None:
    assert n_clusters(points, share) == clusters
    found = cluster_centres(np.random.default_rng(0).normal(size=(points, K)), share, seed=0)
    assert found.shape == (clusters, K)


def test_there_are_never_more_clusters_than_distinct_points() -> None:
    points = np.repeat(np.array([[1.0, 2.0], [0.0, 5.0]]), 30, axis=0)
    np.testing.assert_array_equal(cluster_centres(points, 0.5, seed=0), [[0.0, 5.0], [1.0, 2.0]])
    np.testing.assert_array_equal(cluster_centres(np.zeros((40, 3)), 0.1, seed=0), np.zeros((1, 3)))


def test_a_cluster_of_one_discloses_its_member_unless_it_stays_at_home() -> None:
    points = np.concatenate([np.random.default_rng(2).normal(size=(19, 2)), [[50.0, 50.0]]])
    assert [50.0, 50.0] in cluster_centres(points, 0.1, seed=0).tolist()
    kept = cluster_centres(points, 0.1, seed=0, least_members=2)
    np.testing.assert_allclose(kept, [points[:19].mean(axis=0)])
    assert len(cluster_centres(points, 0.1, seed=0, least_members=21)) == 0


@pytest.mark.parametrize("seed", [182, 338])
def test_a_lone_members_vector_stays_at_home_where_k_means_stops_early(seed: int) -> None:
    """Its last assignment gives the centre of one point a second member, and the centre stays."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(600, 2)) * rng.lognormal(size=(600, 1))
    found = cluster_centres(points, 0.5, seed=seed, seeding="random", least_members=2)
    nearest = min(float(np.linalg.norm(points - centre, axis=1).min()) for centre in found)
    assert nearest > 1e-12


def test_a_draft_is_the_mean_of_the_members_that_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Stopped:
        """K-means as it stands after its last assignment: its centres are of the one before."""

        labels_ = np.array([2, 0, 2, 0, 3], dtype=np.int32)
        cluster_centers_ = np.array([[1.0], [5.0], [0.0], [9.0]])

        def __init__(self, **_: Any) -> None:
            pass

        def fit(self, points: FloatArray) -> None:
            assert len(points) == len(self.labels_)

    monkeypatch.setattr("sklearn.cluster.KMeans", Stopped)
    points = np.array([[0.0], [1.0], [3.0], [2.0], [9.0]])
    assert cluster_centres(points, 0.8, seed=0).tolist() == [[1.5], [1.5], [9.0]]
    assert cluster_centres(points, 0.8, seed=0, least_members=2).tolist() == [[1.5], [1.5]]


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"rounds": 0}, "algorithm.rounds"),
        ({"buckets": 0}, "algorithm.buckets"),
        ({"least_members": 0}, "algorithm.least_members"),
        ({"user_drafts": 0.0}, "algorithm.user_drafts"),
        ({"item_drafts": 1.5}, "algorithm.item_drafts"),
        ({"centres": float("nan")}, "algorithm.centres"),
        ({"quantile": 1.0}, "algorithm.quantile"),
        ({"weight_unit": 0.0}, "algorithm.weight_unit"),
        ({"components": "all"}, "algorithm.components"),
        ({"seeding": "first"}, "algorithm.seeding"),
        ({"threshold": "median"}, "algorithm.threshold"),
        ({"start": "zero"}, "algorithm.start"),
        ({"centre_weights": "equal"}, "algorithm.centre_weights"),
        ({"accuracy": "floor"}, "algorithm.accuracy"),
        ({"training": GUMTraining(keep="last")}, "algorithm.training.patience"),
    ],
)
def test_wrong_settings_are_named(settings: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        HPFLConfig(**settings)
    assert caught.value.key == key
