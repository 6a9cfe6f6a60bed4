"""Packs the studies of a reproduction into ``docs/records``, from where its page can be made again.

    python docs/study_records.py fed3cr OUT/studies

Equal studies are equal bytes. What is unfinished stays outside.
"""

import sys
import zipfile
from pathlib import Path

RECORDS = Path(__file__).parent / "records"
_SUFFIXES = {".json", ".npz"}


def pack(studies: Path, packed: Path) -> int:
    """Write an archive of the finished studies of a folder; how many files it has.

    Args:
        studies: folder of reports, and of arrays beside them.
        packed: file to write.
    """
    files = sorted(path for path in studies.iterdir() if path.suffix in _SUFFIXES)
    packed.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in files:
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes(), zipfile.ZIP_DEFLATED)
    return len(files)


if __name__ == "__main__":
    paper, folder = sys.argv[1:]
    print(f"{pack(Path(folder), RECORDS / f'{paper}.zip')} files")
