"""Every code block of every page runs, in order, as a reader would run it."""

from pathlib import Path

import pytest

from tests.page_blocks import NOT_CODE, ROOT, Block, Reader, blocks_of, environment, matches

ELSEWHERE = {
    "docs/client-step.md": "tests/properties/test_properties_client_docs.py",
    "docs/contracts.md": "tests/test_documents.py",
    "docs/how-to/bring-your-own.md": "tests/audits/test_audit_plugins_page.py",
    "docs/how-to/replace-keys.md": "tests/deploy/test_deploy_replaced_keys.py",
    "docs/losslessness.md": "tests/properties/test_properties_lossless_docs.py",
    "docs/own-data.md": "tests/audits/test_audit_own_data_page.py",
    "docs/pipeline.md": "tests/audits/test_pipeline_page.py",
    **{
        f"docs/reproduction{paper}.md": "tests/test_documents.py"
        for paper in ("", "-fed3cr", "-feddmf", "-fedrecpp")
    },
    "docs/split-personalization.md": "tests/properties/test_properties_split_docs.py",
    **{
        f"docs/protection/{name}.md": "tests/packaging/test_examples.py"
        for name in ("dp", "masking", "paillier", "routing", "shared-upload")
    },
}
"""Pages whose blocks a test of their own runs: it checks more than that they end."""

BUILT = ("_build", "_site")
ROOT_PAGES = tuple(ROOT / f"{name}.md" for name in ("README", "SECURITY", "CONTRIBUTING"))
PAGES = (
    *ROOT_PAGES,
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if not set(BUILT) & set(page.parts)),
)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def code_of(page: Path) -> list[Block]:
    return [block for block in blocks_of(page) if block.language not in NOT_CODE]


READ_HERE = [page for page in PAGES if name_of(page) not in ELSEWHERE and code_of(page)]


@pytest.mark.parametrize("page", READ_HERE, ids=name_of)
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    reader = Reader(folder=folder, environment=environment(tmp_path))
    for block in code_of(page):
        reader.work_through(block)


def test_other_pages_have_a_test_of_their_own() -> None:
    for page, test in ELSEWHERE.items():
        assert code_of(ROOT / page), page
        text = (ROOT / test).read_text(encoding="utf-8")
        stem = Path(page).stem
        assert Path(page).name in text or f'"{stem.replace("-", "_")}"' in text, test


@pytest.mark.parametrize("name", ["ARCHITECTURE", "CHANGELOG"])
def test_other_files_of_the_root_hold_drawings_only(name: str) -> None:
    assert {block.language for block in blocks_of(ROOT / f"{name}.md")} <= {""}


def test_few_blocks_are_not_run() -> None:
    """They fetch something, or take longer than tests may."""
    every = [block for page in READ_HERE for block in code_of(page)]
    idle = [block for block in every if block.not_run]
    assert len(every) >= 25
    assert len(idle) <= 6, [block.place for block in idle]


def test_output_is_compared() -> None:
    assert matches("a\nb ... d\n", "a\nb c d")
    assert matches("a\n...\nd\n", "a\nb\nc\nd")
    assert matches("...\nd\n", "d")
    assert not matches("a\n", "a\nb")
    assert not matches("a.b\n", "axb")


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("sh", "secure-fedrec check --rounds 0\n"),
        ("sh", "secure-fedrec explain lattice  # exit code 2\n"),
        ("sh", "false\n"),
        ("text", "something\n"),
        ("python", "assert False\n"),
        ("toml", "[ring]\nbits = 128\n"),
        ("toml", "# wrong.toml\n[algorithm]\nrnak = 3\n"),
        ("ruby", "puts 1\n"),
    ],
)
def test_a_block_that_does_not_hold_is_noticed(language: str, code: str, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    reader = Reader(folder=folder, environment=environment(tmp_path))
    with pytest.raises(Exception):  # noqa: B017 - of any kind
        reader.work_through(Block(place="here", language=language, code=code))


@pytest.mark.parametrize(
    "code",
    [
        "secure-fedrec audit --no-such-option\n",
        "secure-fedrec audit quickstart.toml --set algorithm.rnak=3\n",
        "make no-such-target\n",
        'pip install "secure-fedrec[nothing]"\n',
        "pip install secure-fedrec\n",
        "pip install secure_fedrec-0.0.1-py3-none-any.whl\n",
        "python -m benchmarks.nothing\n",
        "curl example\n",
    ],
)
def test_a_command_that_is_not_run_is_understood(code: str, tmp_path: Path) -> None:
    reader = Reader(folder=tmp_path, environment={})
    block = Block(place="here", language="sh", code=code, not_run="test")
    with pytest.raises((AssertionError, SystemExit, Exception)):
        reader.work_through(block)
