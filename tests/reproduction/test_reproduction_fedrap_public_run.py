"""FedRAP from the very start of a run of its public code, beside what that run found."""

from pathlib import Path

import numpy as np
import pytest

from secure_fedrec.evaluation.protocols import RankingCase
from secure_fedrec.evaluation.ranks import client_ranks
from tests.reproduction.conftest import data_dir
from tests.reproduction.fedrap_public_run import (
    PUBLIC,
    curve,
    main,
    numbered,
    public_case,
    public_values,
    read_rows,
)


@pytest.fixture(scope="module")
def case() -> RankingCase:
    folder = data_dir()
    if folder is None:
        pytest.skip("SECURE_FEDREC_DATA names no folder with ml-100k")
    return public_case(numbered(read_rows(folder / "ml-100k" / "u.data")))


def test_the_start_is_that_of_the_public_code(case: RankingCase) -> None:
    """Its own sampler, run on the same file: what popularity finds, and where tables begin."""
    popularity = case.train.item_popularity().astype(np.float64)
    clients = np.arange(case.n_clients)
    ranks = client_ranks(case, clients, np.tile(popularity, (case.n_clients, 1)))
    assert np.count_nonzero(ranks.test <= 10) == 394
    assert np.count_nonzero(ranks.validation <= 10) == 398
    values = public_values(case.n_items, 32)
    assert values.personal[0, 0] == pytest.approx(-1.1258398, abs=1e-6)
    assert values.common.std() == pytest.approx(1.0, abs=0.01)


def test_a_run_from_there_finds_what_the_public_code_finds(case: RankingCase) -> None:
    """Four rounds of one seed; the command takes eight, of as many seeds as asked for."""
    assert curve(case, 0, 4) == pytest.approx(PUBLIC[:4], abs=0.02)


def test_a_file_with_commas_is_the_same_table(tmp_path: Path) -> None:
    lines = ["7,5,3,11", "2,9,4,12", "7,9,1,13"]
    (tmp_path / "commas").write_text("\r\n".join([*lines, "", ""]))
    (tmp_path / "tabs").write_text("\n".join(line.replace(",", "\t") for line in lines))
    commas, tabs = (read_rows(tmp_path / name) for name in ("commas", "tabs"))
    assert commas.tolist() == tabs.tolist() == [[2, 9, 4, 12], [7, 5, 3, 11], [7, 9, 1, 13]]
    table = numbered(commas)
    assert (table.clients.tolist(), table.items.tolist()) == ([0, 1, 1], [0, 0, 1])
    assert np.asarray(table.item_labels).tolist() == [9, 5]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "four whole numbers"),
        ("1,2,3", "four whole numbers"),
        ("1,2,3,4\n1,2,3", "four whole numbers"),
        ("user,item,rating,time", "four whole numbers"),
        ("\ufeff1,2,3,4", "four whole numbers"),
        (f"1,2,3,{2**63}", "four whole numbers"),
        ("1,2,3,4\n1,2,3,5", "already rated"),
        ("1,2,3,4\n1,3,3,5", "no 99 unrated items"),
    ],
)
def test_other_files_are_refused(
    text: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text(text, encoding="utf-8")
    with pytest.raises(SystemExit) as ended:
        main([str(tmp_path / "file")])
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


def test_no_seed_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["file", "--seeds", "0"])
    assert ended.value.code == 2
    assert "--seeds must be at least 1" in capsys.readouterr().err
