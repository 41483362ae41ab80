"""Where a path leads: a file of this machine (pathlib), or of a store that fsspec knows (``s3://``, ``https://``, …).

A URL becomes a path of universal-pathlib: it has the methods of pathlib, so readers need not know the difference. The
drivers of the stores (s3fs, gcsfs, aiohttp, …) are the user's own.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from perfkit_core.errors import PerfkitError, SourceError, UsageError

if TYPE_CHECKING:
    import pyarrow as pa

PathLike = str | os.PathLike[str]

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?:::[^/]*)?://")
_WEB: Final = ("http", "https")
_LONGEST: Final = 200
"""Characters of a reason; some drivers list every place where they looked for a library."""

_MISTAKES: Final = (TypeError, AttributeError, NameError, LookupError, AssertionError, ArithmeticError)
"""What a mistake in a program raises; every driver has error classes of its own for what stores and networks do."""


def as_path(place: PathLike) -> Path:
    """The path of a text or path. A URL that is no ``file://`` becomes a path of its store, typed as a Path.

    A path of a store becomes a new one, without the connection. Raises UsageError where no installed driver knows the
    store.
    """
    if hasattr(place, "protocol"):  # a path of universal-pathlib
        store = cast("Any", place)
        return cast("Path", type(store)(str(place), **store.storage_options))  # some texts lack the host
    if not isinstance(place, str):
        return Path(place)
    found = _URL.match(place)
    if found is None:
        return Path(place)
    if found[1].lower() == "file":
        return Path(unquote(urlsplit(place).path))
    return _store_path(place, found[1].lower())


def _store_path(url: str, protocol: str) -> Path:
    import fsspec
    from upath import UPath

    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError:
        raise UsageError(f"{url}: no driver for {protocol}:// is installed", _driver(protocol)) from None
    except ValueError:
        raise UsageError(f"{url}: no store is known by {protocol}://", "perfkit opens what fsspec knows") from None
    try:
        path = UPath(url)
        str(path)  # some addresses are looked at only then
    except (ValueError, TypeError) as error:
        raise UsageError(f"{url}: not the address of a file ({_reason(error)})", "check the address") from None
    return cast("Path", path)


def _driver(protocol: str) -> str:
    """How the driver of a store is installed: the package that fsspec imports, or its own extra."""
    from fsspec.registry import known_implementations

    package = known_implementations[protocol]["class"].partition(".")[0]
    extra = "http" if protocol in _WEB else protocol
    return f'pip install "fsspec[{extra}]"' if package == "fsspec" else f"pip install {package}"


def is_remote(path: Path) -> bool:
    """Whether the path leads to a store instead of this machine's file system."""
    return not isinstance(path, Path)


def exists(path: Path) -> bool:
    """Whether something is there. Raises what a driver raises where the store does not answer."""
    return bool(_store(path).fs.exists(str(path), strict=True)) if _on_web(path) else path.exists()


def is_folder(path: Path) -> bool:
    """Whether the path is a folder. On the web, where every page is a file, one whose address ends in ``/``."""
    return str(path).endswith("/") if _on_web(path) else path.is_dir()


def is_file(path: Path) -> bool:
    """Whether the path is a regular file. On the web, one whose address does not end in ``/``."""
    return not str(path).endswith("/") if _on_web(path) else path.is_file()


def absolute(place: PathLike) -> PathLike:
    """The same place for a process that runs in another folder."""
    path = as_path(place)
    return place if is_remote(path) else path.absolute()


def identity(path: Path) -> str:
    """The same text for the same place, however it is written."""
    return str(path) if is_remote(path) else os.path.realpath(path)  # pathlib's fails on links that lead in a circle


def readable(value: object) -> str:
    """A path, or what names one, as a text that can be printed and stored: bytes that are not UTF-8 as escapes."""
    return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def without_secrets(path: Path) -> str:
    """The path as it may stand in a report: an address of the web without its query, which may hold a signature."""
    text = readable(path)
    if not _on_web(path):
        return text
    parts = urlsplit(text)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def open_binary(path: Path) -> io.BufferedReader:
    """A file to be read from front to back. Raises OSError, and SourceError where a store fails, then or later."""
    if not is_remote(path):
        return path.open("rb")
    with reaching(path):
        streamed = {"block_size": 0} if _on_web(path) else {}  # not every web server hands out parts of a file
        file = _store(path).fs.open(_store(path).path, "rb", **streamed)
    return io.BufferedReader(_StoreFile(path, file), 1 << 20)


def arrow_input(path: Path) -> pa.NativeFile:
    """A file that Arrow may read in any order: mapped into memory, in parts from a store, whole from the web.

    Raises OSError, and SourceError where a store fails, then or later.
    """
    import pyarrow as pa

    if not is_remote(path):
        return pa.memory_map(os.fsencode(path))
    if _on_web(path):
        return pa.BufferReader(fetched(path))
    with reaching(path):
        return pa.PythonFile(_StoreFile(path, path.open("rb")), mode="r")


def fetched(path: Path) -> pa.Buffer:
    """All bytes of a file. Raises OSError, and SourceError where a store fails."""
    import pyarrow as pa

    with open_binary(path) as file:
        return pa.py_buffer(file.read())


@contextlib.contextmanager
def reaching(path: Path) -> Iterator[None]:
    """Turns what a store and its driver raise into a SourceError of one line. Files of this machine are not touched."""
    try:
        yield
    except (PerfkitError, *_MISTAKES):
        raise
    except Exception as error:
        if not is_remote(path):
            raise
        raise SourceError(f"{path}: cannot be read ({_reason(error)})", _advice(error)) from None


def walk_store(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    """As ``os.walk``: each folder with the names of its folders, of which some may be taken out, and of its files."""
    store = _store(root)
    for folder, folders, files in store.fs.walk(store.path):
        below = folder.removeprefix(store.path).strip("/")
        yield root / below if below else root, folders, files


def modified_ns(path: Path) -> int | None:
    """When a file was written last, ns since 1970; None where its store does not tell."""
    if not is_remote(path):
        return path.stat().st_mtime_ns
    try:
        return int(_store(path).fs.modified(_store(path).path).timestamp()) * 1_000_000_000
    except NotImplementedError:
        return None


def put(file: Path, path: Path) -> None:
    """Send a file of this machine to its place in a store, in one put. Raises OSError."""
    try:
        _store(path).fs.put_file(str(file), _store(path).path)
    except _MISTAKES:
        raise
    except Exception as error:
        raise OSError(None, _reason(error), str(path)) from error


def why_unwritable_store(folder: Path) -> str | None:
    """The reason why a store takes no file, None where it takes one."""
    probe = _store(folder / ".perfkit-probe")
    try:
        probe.fs.pipe_file(probe.path, b"")
    except Exception as error:  # every driver has errors of its own
        return _reason(error)
    with contextlib.suppress(Exception):  # who may write need not be allowed to delete
        probe.fs.rm_file(probe.path)
    return None


def _reason(error: Exception) -> str:
    """An error in one line; of a long one its first line."""
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, NotImplementedError):
        told = "this store can only be read"
    told = told.strip() or type(error).__name__
    if len(told) > _LONGEST:
        told = told.splitlines()[0]
    return textwrap.shorten(told, _LONGEST, placeholder=" …")


def _advice(error: Exception) -> str:
    """What to do where a store cannot be reached."""
    if "libjvm" in str(error) or "libhdfs" in str(error):
        return "hdfs:// needs Java and Hadoop on this machine: set JAVA_HOME, HADOOP_HOME and CLASSPATH"
    return "check the address, the network and your credentials"


def _store(path: Path) -> Any:
    """The path with its ``fs`` and ``path``, which pathlib's have not."""
    return path


def _on_web(path: Path) -> bool:
    return is_remote(path) and _store(path).protocol in _WEB


class _StoreFile(io.RawIOBase):
    """A file of a store whose every failure is a SourceError."""

    def __init__(self, path: Path, file: Any) -> None:
        self._path = path
        self._file = file

    def readable(self) -> bool:
        return True

    @functools.cached_property
    def _can_seek(self) -> bool:
        return bool(self._file.seekable())

    def seekable(self) -> bool:
        return self._can_seek

    def readinto(self, buffer: Any) -> int:
        """As many bytes as the store gives at once; none only at the end."""
        with reaching(self._path):
            piece = self._file.read(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        with reaching(self._path):
            return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            with contextlib.suppress(Exception):  # what was read is read
                self._file.close()
        super().close()
