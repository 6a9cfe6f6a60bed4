import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from secure_fedrec.data import ORGANISATIONS, SplitShares, load, load_organisations, locate
from secure_fedrec.data.organisations.assist import assist2009_by_blocks, assist2009_sample
from secure_fedrec.data.organisations.movielens import GENRES, ml_100k_by_zip
from secure_fedrec.errors import ConfigError, DataError

NOTHING_HELD_OUT = SplitShares(test=0.0, validation=0.0)


@pytest.fixture
def films(ml_100k: Path) -> Path:
    """The made-up ML-100K folder with all 19 genre flags and two areas."""
    flags = {"1": "0|1|1", "2": "1|0|0", "4": "0|0|1"}
    rest = "|0" * (len(GENRES) - 3)
    lines = [f"{item}|T|01-Jan-1990||url|{first}{rest}\n" for item, first in flags.items()]
    (ml_100k / "u.item").write_text("".join(lines), encoding="latin-1")
    users = "1|17|F|student|55105\n2|18|M|artist|T8H1N\n3|56|M|none|00000\n"
    (ml_100k / "u.user").write_text(users, encoding="ascii")
    return ml_100k


def test_films_by_area(films: Path) -> None:
    data = ml_100k_by_zip(films, shares=NOTHING_HELD_OUT, seed=1)
    assert data.names == ("zip 0", "zip 5")
    assert [ids.tolist() for ids in data.user_ids] == [[2], [0]]
    assert [ids.tolist() for ids in data.item_ids] == [[1], [1]]
    assert data.attribute_names == GENRES
    assert data.attributes[0].tolist() == [[True] + [False] * 18]
    assert data.levels.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("u.user", "55105", "?5105", "line 1: zip code '\\?5105' has no area"),
        ("u.item", "url|1|0", "url|2|0", "line 2: a genre flag is neither 0 nor 1"),
        ("u.item", "url|1|0", "url|0|0", "item 1 has no attribute"),
        ("u.item", "|0\n4", "\n4", "line 2: has 23 columns"),
    ],
)
def test_damaged_films(films: Path, file: str, old: str, new: str, message: str) -> None:
    path = films / file
    path.write_text(path.read_text("latin-1").replace(old, new, 1), encoding="latin-1")
    with pytest.raises(DataError, match=message):
        ml_100k_by_zip(films, shares=NOTHING_HELD_OUT, seed=1)


@pytest.fixture
def answers(tmp_path: Path) -> Path:
    folder = tmp_path / "assist2009"
    folder.mkdir()
    header = "user_id,item_id,score\n"
    (folder / "train.csv").write_text(header + "11,2,1\n7,2,0\n40,5,1\n")
    (folder / "valid.csv").write_text(header + "11,3,0\n")
    (folder / "test.csv").write_text(header + "9,5,1\n40,2,0\n")
    items = 'item_id,knowledge_code\n2,[83]\n5,"[13, 14]"\n3,"[14, 14]"\n2,[13]\n'
    (folder / "item.csv").write_text(items)
    return folder


def test_answers_by_block_of_user_numbers(answers: Path) -> None:
    data = assist2009_by_blocks(answers, shares=NOTHING_HELD_OUT, seed=1, clients=2)
    assert data.names == ("block 0", "block 1")
    assert [ids.tolist() for ids in data.user_ids] == [[7, 9], [11, 40]]
    assert data.attribute_names == ("concept 13", "concept 14", "concept 83")
    # Item 2 has two rows, item 3 a repeated code: the union counts.
    assert dict(zip(data.item_ids[1].tolist(), data.attributes[1].tolist(), strict=True)) == {
        2: [True, False, True],
        3: [False, True, False],
        5: [True, True, False],
    }
    assert len(data.train) == 6
    assert data.binary


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("test.csv", "9,5,1", "9,5,2", "test.csv, line 2: score 2 is neither 0 nor 1"),
        ("test.csv", "9,5,1", "40,5,1", "user 40 has two records of item 5"),
        ("item.csv", "2,[83]", "2,83", "line 2: is not an item number and a list"),
        ("item.csv", '3,"[14', 'x,"[14', "line 4: is not an item number"),
        ("item.csv", '3,"[14, 14]"', "4,[14]", "item 3 has no attribute"),
    ],
)
def test_damaged_answers(answers: Path, file: str, old: str, new: str, message: str) -> None:
    path = answers / file
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(DataError, match=message):
        assist2009_by_blocks(answers, shares=NOTHING_HELD_OUT, seed=1, clients=2)


@pytest.mark.parametrize("clients", [0, 5])
def test_more_blocks_than_users(answers: Path, clients: int) -> None:
    with pytest.raises(ConfigError, match=r"data\.clients"):
        assist2009_by_blocks(answers, shares=NOTHING_HELD_OUT, seed=1, clients=clients)


def answer(user: int, item: int, score: float = 1.0) -> dict[str, object]:
    return {"user_id": user, "exer_id": item, "score": score, "knowledge_code": [280]}


def logged(user: int, item: int) -> dict[str, object]:
    log = {key: value for key, value in answer(user, item).items() if key != "user_id"}
    return {"user_id": user, "teacher": 0, "log_num": 1, "logs": [log]}


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    folder = tmp_path / "assist2009" / "hpfl-sample"
    folder.mkdir(parents=True)
    for client in "01":
        train = [answer(user, item, item % 2) for user in range(2) for item in range(3)]
        (folder / f"train_{client}.json").write_text(json.dumps(train))
        (folder / f"test_{client}.json").write_text(json.dumps([logged(0, 4), logged(1, 5)]))
    return folder.parent


def test_sample_keeps_its_test_records(sample: Path) -> None:
    data = assist2009_sample(sample, shares=SplitShares(validation=0.3), seed=1)
    assert data.n_users == (2, 2)
    assert data.train.counts().tolist() == [4, 4]
    assert data.validation.counts().tolist() == [2, 2]
    assert [data.item_ids[0][item] for item in data.test.of(0).items] == [4, 5]
    # Numbers are local to a file: nobody is in both clients.
    assert not set(data.user_ids[0]) & set(data.user_ids[1])
    assert not set(data.item_ids[0]) & set(data.item_ids[1])


def drop(record: dict[str, object]) -> None:
    del record["score"]


def make_text(record: dict[str, object]) -> None:
    record["user_id"] = "3"


def off_scale(record: dict[str, object]) -> None:
    record["score"] = 0.5


def no_concept(record: dict[str, object]) -> None:
    record["knowledge_code"] = []


def other_concept(record: dict[str, object]) -> None:
    record["knowledge_code"] = [281]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (drop, "a record lacks 'score'"),
        (make_text, "holds a wrong number"),
        (off_scale, "score 0.5 is neither 0 nor 1"),
        (no_concept, "holds a wrong number"),
        (other_concept, "question 0 has different concepts"),
    ],
)
def test_damaged_sample(
    sample: Path, damage: Callable[[dict[str, object]], None], message: str
) -> None:
    path = sample / "hpfl-sample" / "train_0.json"
    records = json.loads(path.read_text())
    damage(records[0])
    path.write_text(json.dumps(records))
    with pytest.raises(DataError, match=message):
        assist2009_sample(sample, shares=SplitShares(), seed=1)


@pytest.mark.parametrize(
    ("text", "message"),
    [("[", "is not JSON"), ("[]", "must hold a list"), ('[{"user_id": 1}]', "must hold a list")],
)
def test_sample_of_another_form(sample: Path, text: str, message: str) -> None:
    (sample / "hpfl-sample" / "test_1.json").write_text(text)
    with pytest.raises(DataError, match=message):
        assist2009_sample(sample, shares=SplitShares(), seed=1)


def test_unknown_name_lists_the_choices(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="assist2009-sample") as caught:
        load_organisations("ml-100k", tmp_path, seed=1)
    assert caught.value.choices == tuple(ORGANISATIONS)


def test_answers_are_no_rating_table(answers: Path) -> None:
    assert locate("assist2009", answers.parent) == answers
    with pytest.raises(ConfigError, match="is not a rating table") as caught:
        load("assist2009", answers)
    assert "assist2009" not in (caught.value.choices or ())
    with pytest.raises(DataError, match="name the folder of an existing copy") as absent:
        locate("assist2009", answers / "elsewhere")
    assert "data get" not in str(absent.value)  # its publisher asks not to pass it on


def test_damage_is_found_by_digest(answers: Path) -> None:
    with pytest.raises(DataError, match="SHA-256"):
        load_organisations("assist2009", answers, seed=1)
    with pytest.raises(ConfigError, match=r"data\.clients"):  # read, and too small for 59 clients
        load_organisations("assist2009", answers, seed=1, verify=False)


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "clients", "users", "items", "records", "per_item"),
    [
        ("ml-100k-zip", 10, 925, 1679, 97_914, 1.72),
        ("assist2009", 59, 2493, 17_671, 267_415, 1.20),
        ("assist2009-sample", 2, 156, 379, 2344, 1.0),
    ],
)
def test_real_sizes(
    real_data: Path,
    name: str,
    clients: int,
    users: int,
    items: int,
    records: int,
    per_item: float,
) -> None:
    """Sizes as in the paper's Table 1 where the preparation is the paper's."""
    data = load_organisations(name, real_data, seed=1)
    pooled = data.pooled()
    assert (data.n_clients, pooled.n_users, pooled.n_items) == (clients, (users,), (items,))
    assert len(data.train) + len(data.validation) + len(data.test) == records
    assert round(float(pooled.attributes[0].sum(axis=1).mean()), 2) == per_item


@pytest.mark.data
def test_real_blocks_are_not_identically_distributed(real_data: Path) -> None:
    """The claim behind the proxy: blocks of user numbers differ in concepts, random ones do not."""
    data = load_organisations("assist2009", real_data, seed=1)
    pooled = data.pooled()
    users, items, _ = pooled.train.of(0)
    own = np.zeros((len(pooled.user_ids[0]), data.n_attributes))
    np.add.at(own, users, pooled.attributes[0][items].astype(float))
    blocks = np.repeat(np.arange(data.n_clients), data.n_users)
    shuffled = np.random.default_rng(1).permutation(blocks)
    assert divergence(own, blocks) > 0.5
    assert divergence(own, shuffled) < 0.1


def divergence(counts: np.ndarray, clients: np.ndarray) -> float:
    """Mean Jensen-Shannon divergence of two clients' concept distributions, in bits."""
    totals = np.stack([counts[clients == client].sum(axis=0) for client in np.unique(clients)])
    shares = totals / totals.sum(axis=1, keepdims=True)

    def entropy(p: np.ndarray) -> np.ndarray:
        return np.asarray(-(p * np.log2(np.where(p > 0, p, 1.0))).sum(axis=-1))

    one, other = np.triu_indices(len(shares), 1)
    mixed = entropy((shares[one] + shares[other]) / 2)
    return float(np.mean(mixed - (entropy(shares[one]) + entropy(shares[other])) / 2))
