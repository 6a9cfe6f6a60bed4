"""Fetching a data set from its publisher, all or nothing.

The archive and its files are written to a hidden folder beside the target, checked there, and moved
into place by one rename. Whatever fails on the way, the target is either absent or complete.
"""

import shutil
import sys
import tempfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any, Final
from urllib.parse import urljoin

from tqdm import tqdm

from secure_fedrec.data.catalogue import DatasetInfo
from secure_fedrec.data.refusals import refused
from secure_fedrec.data.registry import data_home, dataset_info, load
from secure_fedrec.errors import ConfigError, DataError

_TIMEOUT_SECONDS: Final = 30.0
_CHUNK_BYTES: Final = 1 << 16
# The largest known archive has 6 MB and its largest file 25 MB.
_ARCHIVE_LIMIT: Final = 64 << 20
_MEMBER_LIMIT: Final = 256 << 20


class _Limited:
    """A file that takes no more than the largest archive."""

    def __init__(self, sink: IO[bytes], address: str) -> None:
        self._sink, self._address, self._room = sink, address, _ARCHIVE_LIMIT
        self.flush = sink.flush

    def write(self, chunk: bytes) -> None:
        self._room -= len(chunk)
        if self._room < 0:
            raise DataError(self._address, f"the archive exceeds {_ARCHIVE_LIMIT >> 20} MiB")
        self._sink.write(chunk)


def get(
    name: str,
    target_dir: Path | None = None,
    *,
    progress: bool = True,
) -> Path:
    """Downloads a data set into ``target_dir / name``, unless it is already there and intact.

    Args:
        name: one of ``DATASETS`` that has an origin.
        target_dir: folder of the data sets; the per-user cache by default.
        progress: whether to draw a progress bar on standard error.

    Returns:
        The data set's folder.

    Raises:
        ConfigError: the name is unknown or has nothing to download.
        DataError: the network, the archive or the disk failed, or the folder is already in use by
            something else. Partial files are removed, and existing files are not replaced.
    """
    info = dataset_info(name)
    if info.origin is None:
        raise ConfigError("data.name", name, "has nothing to download")
    folder = (data_home() if target_dir is None else target_dir) / name
    if folder.exists():
        return _existing(info, folder)
    with refused(folder, "cannot be written ({})", OSError):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as hidden:
            archive, staged = Path(hidden, "archive.zip"), Path(hidden, name)
            _fetch(info.origin, archive, progress)
            _extract(info, archive, staged)
            _verify(info, staged)
            staged.rename(folder)
    return folder


def _existing(info: DatasetInfo, folder: Path) -> Path:
    """Accepts a folder that already holds the data set; never touches one that holds another."""
    problem = "exists but is not a sound copy; move it away and try again ({})"
    with refused(folder, problem, DataError):
        load(info.name, folder)
    return folder


def _fetch(address: str, archive: Path, progress: bool) -> None:
    """Copies the body at an address into a file; follows redirects to https only."""
    from pooch import HTTPDownloader  # noqa: PLC0415 - only who downloads waits for it

    name = address.rpartition("/")[2]
    # The downloader sets the total; to tqdm a bar without one is neither true nor false.
    bar = tqdm(total=1, unit="B", unit_scale=True, desc=name, file=sys.stderr, disable=not progress)
    download: Any = HTTPDownloader(
        progressbar=bar if progress else False,
        chunk_size=_CHUNK_BYTES,
        timeout=_TIMEOUT_SECONDS,
        hooks={"response": _require_https},
    )
    with refused(address, "the download failed ({})", OSError), bar, archive.open("wb") as sink:
        download(address, _Limited(sink, address), None)


def _require_https(response: Any, **_: Any) -> None:
    """Refuses a redirect that would leave https, after which anyone could alter the archive."""
    following = urljoin(response.url, response.headers.get("location", ""))
    if not following.startswith("https://"):
        raise OSError(f"the server redirects to {following}, which is not https")


def _extract(info: DatasetInfo, archive: Path, staged: Path) -> None:
    """Unpacks the published files, and no others, into a new folder."""
    staged.mkdir()
    origin = str(info.origin)
    # RuntimeError: encrypted members, and (as NotImplementedError) unknown compression.
    damage = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError)
    with (
        refused(origin, "the archive lacks a file ({})", KeyError),
        refused(origin, "is not a readable zip archive ({})", *damage),
        zipfile.ZipFile(archive) as bundle,
    ):
        for member in bundle.infolist():
            _refuse_unsafe(info, member)
        for file in info.files:
            if file.published:
                _extract_member(bundle, f"{info.name}/{file.name}", staged / file.name)


def _refuse_unsafe(info: DatasetInfo, member: zipfile.ZipInfo) -> None:
    """Refuses an archive with a member that, unpacked by its name, would leave its folder.

    Members are never unpacked by the names in the archive, so such a name would be harmless here;
    but a publisher's archive has none, so an archive with one was tampered with.
    """
    name = member.filename
    posix, windows = PurePosixPath(name), PureWindowsPath(name)
    escapes = ".." in posix.parts + windows.parts
    is_link = (member.external_attr >> 16) & 0o170000 == 0o120000
    if escapes or is_link or posix.is_absolute() or windows.drive or windows.root:
        problem = f"the archive holds an unsafe member {name!r}; nothing was unpacked"
        raise DataError(str(info.origin), problem)


def _extract_member(bundle: zipfile.ZipFile, member: str, path: Path) -> None:
    """Unpacks one member; ``zipfile`` itself stops at the declared size and checks the CRC."""
    declared = bundle.getinfo(member).file_size
    if declared > _MEMBER_LIMIT:
        raise DataError(member, f"unpacks to more than {_MEMBER_LIMIT >> 20} MiB")
    with bundle.open(member) as source, path.open("wb") as sink:
        shutil.copyfileobj(source, sink, _CHUNK_BYTES)


def _verify(info: DatasetInfo, staged: Path) -> None:
    """Loads the unpacked files, which checks digests and sizes; errors name the archive."""
    try:
        load(info.name, staged.parent)
    except DataError as error:
        # The file itself is about to be removed, so only its name helps.
        problem = f"the archive is not the published data set: {Path(error.path).name}: "
        raise DataError(str(info.origin), problem + error.problem) from error
