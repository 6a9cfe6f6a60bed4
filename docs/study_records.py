"""Packs the studies of a reproduction into ``docs/records``, from where its page can be made again.

    python docs/study_records.py fed3cr OUT/studies [OUT/fed3cr.json]

Equal studies are equal bytes. What is unfinished stays outside; so does, where a result of the
reproduction is given, what it does not name among its ``studies``.
"""

import json
import sys
import zipfile
from collections.abc import Collection
from pathlib import Path

RECORDS = Path(__file__).parent / "records"
_SUFFIXES = {".json", ".npz"}


def pack(studies: Path, packed: Path, only: Collection[str] | None = None) -> int:
    """Write an archive of the finished studies of a folder; how many files it has.

    Args:
        studies: folder of reports, and of arrays beside them.
        packed: file to write.
        only: names of studies; None for all.
    """
    files = sorted(
        path
        for path in studies.iterdir()
        if path.suffix in _SUFFIXES and (only is None or path.stem in only)
    )
    packed.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in files:
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return len(files)


if __name__ == "__main__":
    paper, folder, *results = sys.argv[1:]
    named = [json.loads(Path(each).read_text(encoding="utf-8"))["studies"] for each in results]
    wanted = {each for own in named for each in own} if results else None
    print(f"{pack(Path(folder), RECORDS / f'{paper}.zip', wanted)} files")
