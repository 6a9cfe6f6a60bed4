"""Packs the studies of a reproduction into ``docs/records``, from where its page can be made again.

    python docs/study_records.py fed3cr OUT/studies [OUT/fed3cr.json]

Of a study's arrays only those are kept that the paper's tables are made from (``Entry.arrays``):
figures, not states. Equal studies are equal bytes. What is unfinished stays outside; so does, where
a result of the reproduction is given, what it does not name among its ``studies``.
"""

import json
import sys
import zipfile
from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

from audits.reproduction.papers import entries
from secure_fedrec.core.files import read_json
from secure_fedrec.studies.files import arrays_beside, read_arrays, write_files

RECORDS = Path(__file__).parent / "records"


def pack(
    studies: Path,
    packed: Path,
    arrays: tuple[str, ...] | None = None,
    only: Collection[str] | None = None,
) -> int:
    """Write an archive of the finished studies of a folder; how many files it has.

    Args:
        studies: folder of reports, and of arrays beside them.
        packed: file to write.
        arrays: names of those that are kept; None for all.
        only: names of studies; None for all.
    """
    packed.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as folder:
        if arrays is not None:
            for path in studies.glob("*.json"):
                _thin(path, Path(folder) / path.name, arrays)
        kept = studies if arrays is None else Path(folder)
        files = sorted(
            path
            for path in kept.iterdir()
            if path.suffix in {".json", ".npz"} and (only is None or path.stem in only)
        )
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            for path in files:
                name = zipfile.ZipInfo(path.name)
                archive.writestr(name, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return len(files)


def _thin(path: Path, copy: Path, arrays: tuple[str, ...]) -> None:
    """Write a study without its other arrays."""
    found = read_arrays(path) if arrays and arrays_beside(path).exists() else {}
    report = {name: value for name, value in read_json(path).items() if name != "sha256"}
    write_files(copy, report, {name: each for name, each in found.items() if name in arrays})


if __name__ == "__main__":
    paper, folder, *results = sys.argv[1:]
    named = [json.loads(Path(each).read_text(encoding="utf-8"))["studies"] for each in results]
    wanted = {each for own in named for each in own} if results else None
    count = pack(Path(folder), RECORDS / f"{paper}.zip", entries()[paper].arrays, wanted)
    print(f"{count} files")
