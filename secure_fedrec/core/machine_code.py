"""Machine code of loops: made at the first call, cached on disk if possible.

The cache is beside the source, or in the user's cache folder; if neither can be written, as in a
read-only image without a home, in a private folder among the temporary files. Loaded code is run,
so a folder that other users may write to is never used.

The compiler considers a cache valid as long as the loop's own file is unchanged. After changes in
other files it would silently use old code, so everything that determines the code is checked here
(``code_stamp``).
"""

import contextlib
import mmap
import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from functools import cache, partial
from glob import escape
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias

from secure_fedrec.core.code_stamp import fields_of, follows_from

ErrorModel: TypeAlias = Literal["python", "numpy"]


def compile_cached(loop: Callable[..., object], *, error_model: ErrorModel = "python") -> Any:
    """Hand a loop to the compiler, with a cache on disk where one can be written.

    Args:
        loop: a function in the part of Python and NumPy that the compiler knows; other threads run
            meanwhile.
        error_model: the rule for division by zero, "python" or "numpy".
    """
    from numba import njit  # noqa: PLC0415
    from numba.core import config  # noqa: PLC0415

    compiler = partial(njit, nogil=True, error_model=error_model)
    if (stamp := follows_from(loop)) is not None:
        with contextlib.suppress(RuntimeError):  # Numba cannot write to a folder
            return _forgiving(compiler(cache=True)(loop), stamp)
        if folder := _own_folder():
            config.CACHE_DIR = str(folder)  # type: ignore[attr-defined]
            with contextlib.suppress(RuntimeError):  # or cannot find the loop's file
                return _forgiving(compiler(cache=True)(loop), stamp)
    return compiler(loop)


def _cache_file(kept: Any, stamp: str) -> Any:
    """Files of a loop's code, whose names depend on the stamp and on the signature.

    The compiler only numbers its files, so concurrent or killed processes could store code under
    the name of another stamp or signature. Code is written before it is listed.
    """
    from numba import __version__  # noqa: PLC0415
    from numba.core.caching import IndexDataCacheFile  # noqa: PLC0415

    class CacheFile(IndexDataCacheFile):
        """Its parts come from the compiler."""

        def save(self, key: Any, data: Any) -> None:
            files: Any = self
            name = files._data_name(int(sha256(repr(key).encode()).hexdigest()[:16], 16))
            files._save_data(name, data)
            listed = files._load_index()
            if listed.get(key) != name:
                files._save_index({**listed, key: name})
            for other in folder.glob(f"{escape(base)}-*.nb?"):
                if not other.name.startswith(f"{own}."):
                    other.unlink(missing_ok=True)

    folder, base = Path(kept.cache_path), kept._impl.filename_base
    own = f"{base}-{sha256(f'{__version__} {stamp}'.encode()).hexdigest()[:16]}"
    made: Any = CacheFile
    return made(cache_path=kept.cache_path, filename_base=own, source_stamp=stamp)


def _forgiving(compiled: Any, stamp: str) -> Any:
    """A compiled loop that works without its cache if that cannot be written or read.

    Args:
        compiled: the loop.
        stamp: digest of everything that decides its code.
    """
    kept, loop = compiled._cache, compiled.py_func
    kept._cache_file = _cache_file(kept, stamp)
    save, load, index_key = kept.save_overload, kept.load_overload, kept._index_key

    def with_fields(signature: Any, codegen: Any) -> tuple[Any, ...]:
        fields = fields_of(getattr(signature, "args", signature))
        return *index_key(signature, codegen), fields

    def save_overload(signature: Any, data: Any) -> None:
        try:
            if follows_from(loop) == stamp:  # the arrays it reads did not change
                save(signature, data)
        except Exception as refused:
            _tell_unused(kept.cache_path, refused)

    def load_overload(signature: Any, context: Any) -> Any:
        try:
            return load(signature, context) if follows_from(loop) == stamp else None
        except OSError as refused:
            _tell_unused(kept.cache_path, refused)
        except Exception:
            with contextlib.suppress(OSError):
                kept.flush()  # so that the cache is written again
        return None

    kept.save_overload, kept.load_overload = save_overload, load_overload
    kept._index_key = with_fields
    return compiled


def _tell_unused(folder: str | Path, refused: Exception) -> None:
    _warn_once(f"{folder}: {getattr(refused, 'strerror', None) or refused}")


_TOLD = mmap.mmap(-1, 1)
"""Whether the warning was logged, in this process or in a process forked from it since."""


def _warn_once(problem: str) -> None:
    """Warn about the first unusable folder only, since all have the same remedy."""
    if _TOLD[0]:
        return
    _TOLD[0] = True
    told = f"{problem}; loops are compiled again in every process: name a folder that"
    warnings.warn(f"{told} can be written in NUMBA_CACHE_DIR", RuntimeWarning, stacklevel=2)


@cache
def _own_folder() -> Path | None:
    """A private folder of this user among the temporary files; None if it cannot be made."""
    folder = Path(tempfile.gettempdir()) / f"secure-fedrec-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as refused:
        problem: str = refused.strerror or str(refused)
    else:
        foreign = found.st_uid != os.getuid() or found.st_mode & 0o077
        if stat.S_ISDIR(found.st_mode) and not foreign:
            return folder
        problem = "others may write to it"
    _warn_once(f"{folder}: {problem}")
    return None
