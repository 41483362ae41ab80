"""Local files (pathlib) and files in the stores that fsspec supports (``s3://``, ``https://``, …). A URL becomes a path
of universal-pathlib, which has the methods of pathlib. Users install the drivers of their stores, such as s3fs."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import os
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote, urlsplit, urlunsplit

from perfkit_core.base.system import processes
from perfkit_core.errors import PerfkitError, SourceError, UsageError, abridged, one_line

if TYPE_CHECKING:
    import pyarrow as pa

PathLike = str | os.PathLike[str]

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)(?:::[^/]*)?://")
_WEB: Final = ("http", "https")
_MAX_REASON_CHARACTERS: Final = 200
"""Limit for the reason in an error message, because some drivers list every path where they looked for a library."""

_PROGRAMMING_ERRORS: Final = (TypeError, AttributeError, NameError, LookupError, AssertionError, ArithmeticError)
"""Errors that mean a bug. All other errors of a store's driver are reported as failures of the store."""


def as_path(location: PathLike) -> Path:
    """Return a text or path as a path, without connecting to a store. A ``file://`` URL becomes a local path. Any other
    URL becomes a path of universal-pathlib, typed as Path. Raises UsageError if no driver supports the URL."""
    if "\0" in str(location):
        raise UsageError(f"{location}: a path has no null characters", "check the path")
    if hasattr(location, "protocol"):  # a path of universal-pathlib
        store = cast("Any", location)
        return cast("Path", type(store)(str(location), **store.storage_options))  # some stores omit the host in str()
    match = _URL.match(location) if isinstance(location, str) else None
    if match is None:
        return Path(location)
    url, protocol = match.string, match[1].lower()
    if protocol == "file":
        return Path(unquote(urlsplit(url).path))
    import fsspec
    from fsspec.registry import known_implementations
    from upath import UPath

    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError:
        package = known_implementations[protocol]["class"].partition(".")[0]
        extra = "http" if protocol in _WEB else protocol
        install = f'pip install "fsspec[{extra}]"' if package == "fsspec" else f"pip install {package}"
        raise UsageError(f"{url}: no driver for {protocol}:// is installed", install) from None
    except ValueError:
        raise UsageError(f"{url}: unsupported URL scheme {protocol}://", "fsspec has no driver for it") from None
    try:
        path = UPath(url)
        str(path)  # some drivers check the URL only here
    except (ValueError, TypeError) as error:
        raise UsageError(f"{url}: not the URL of a file ({_reason(error)})", "check the URL") from None
    return cast("Path", path)


def user_folder(variable: str, default: str) -> Path:
    """Return perfkit's folder under the folder that an XDG variable names, such as ``$XDG_CACHE_HOME/perfkit``. If the
    variable is not set, return the folder under ``default`` in the home folder."""
    configured = os.environ.get(variable, "")
    # the XDG standard requires that relative paths are ignored
    root = Path(configured) if Path(configured).is_absolute() else Path.home() / default
    return root / "perfkit"


def append_line(path: Path, line: bytes) -> None:
    """Append a line, or several, to a local file. Other processes may do so at the same time. If not all of it can be
    written, nothing is. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        with contextlib.suppress(ImportError):  # Windows has no fcntl, so the file is not locked there.
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)  # Closing the file releases the lock.
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # Another process died while it wrote its line.
                line = b"\n" + line
        if file.write(line + b"\n") <= len(line):
            file.truncate(end)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def is_remote(path: Path) -> bool:
    return not isinstance(path, Path)


def exists(path: Path) -> bool:
    """Return whether the path exists. Raises the error of the store's driver if the store does not answer."""
    return bool(_store(path).fs.exists(str(path), strict=True)) if _on_web(path) else path.exists()


def is_folder(path: Path) -> bool:
    """Return whether the path is a folder. A web address is a folder if it ends in ``/``."""
    return str(path).endswith("/") if _on_web(path) else path.is_dir()


def is_file(path: Path) -> bool:
    """Return whether the path is a regular file. A web address is a file unless it ends in ``/``."""
    return not str(path).endswith("/") if _on_web(path) else path.is_file()


def absolute(location: PathLike) -> PathLike:
    """Return a path that is also valid in a process with another working directory."""
    path = as_path(location)
    return location if is_remote(path) else path.absolute()


def identity(path: Path) -> str:
    """Return a text that is the same for all spellings of a path."""
    return str(path) if is_remote(path) else os.path.realpath(path)  # Path.resolve fails for circular links


def readable(value: object) -> str:
    """Return a path or name as printable text. Bytes that are not UTF-8 are escaped."""
    return str(value).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def printable(text: str) -> str:
    """Return the text with unprintable characters escaped. Control characters in a name could control a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def printable_line(text: object) -> str:
    """Return the text of an error on one line, with unprintable characters escaped and long names abridged."""
    return printable(one_line(abridged(str(text))))


def harmless(text: str) -> str:
    """Return the text with unprintable characters escaped, except for line breaks and tabs."""
    return "".join(line if line in "\n\t" else printable(line) for line in re.split(r"([\n\t])", text))


def without_secrets(path: Path) -> str:
    """Return the path as text. A web address loses its query and credentials, which may be secret."""
    text = readable(path)
    if not _on_web(path):
        return text
    parts = urlsplit(text)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def open_binary(path: Path) -> io.BufferedReader:
    """Open a file for sequential reading. Opening and reading raise OSError, or SourceError if the file is remote."""
    if not is_remote(path):
        return path.open("rb")
    with reaching(path):
        streamed = {"block_size": 0} if _on_web(path) else {}  # some web servers do not serve byte ranges
        file = _store(path).fs.open(_store(path).path, "rb", **streamed)
    return io.BufferedReader(_StoreFile(path, file), 1 << 20)


def arrow_input(path: Path) -> pa.NativeFile:
    """Open a file for random access by Arrow. A local file is mapped into memory, a file of a web server is downloaded,
    and a file of another store is read by byte ranges. Raises OSError, and SourceError if a store fails. Reading
    the file can raise both too."""
    import pyarrow as pa

    if not is_remote(path):
        return pa.memory_map(os.fsencode(path))
    if _on_web(path):
        return pa.BufferReader(fetched(path))
    with reaching(path):
        return pa.PythonFile(_StoreFile(path, path.open("rb")), mode="r")


def fetched(path: Path) -> pa.Buffer:
    import pyarrow as pa

    with open_binary(path) as file:
        return pa.py_buffer(file.read())


@contextlib.contextmanager
def reaching(path: Path) -> Iterator[None]:
    """Convert errors of a store and its driver to a SourceError of one line. Errors of local files pass unchanged."""
    try:
        yield
    except (PerfkitError, *_PROGRAMMING_ERRORS):
        raise
    except Exception as error:
        if not is_remote(path):
            raise
        hint = "check the URL, the network and your credentials"
        if "libjvm" in str(error) or "libhdfs" in str(error):
            hint = "hdfs:// needs Java and Hadoop on this machine: set JAVA_HOME, HADOOP_HOME and CLASSPATH"
        raise SourceError(f"{path}: cannot be read ({_reason(error)})", hint) from None


def walk(
    root: Path, failed: Callable[[Path, Exception], None] | None = None
) -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield each folder, its folder names and its file names. As with ``os.walk``, removed folder names are skipped,
    and links to folders are not followed.

    Raises the error of a folder that cannot be listed. If ``failed`` is given, it receives the folders below ``root``
    that cannot be listed, and their errors."""
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        try:
            folders, files = _listed(folder)
        except _PROGRAMMING_ERRORS:
            raise
        except Exception as error:  # every driver has its own error classes
            if failed is None or folder is root:
                raise
            failed(folder, error)
            continue
        yield folder, folders, files
        waiting += (folder / name for name in reversed(folders))


def _listed(folder: Path) -> tuple[list[str], list[str]]:
    if is_remote(folder):
        store = _store(folder)
        _, folders, files = next(store.fs.walk(store.path, maxdepth=1, on_error="raise"))
        return folders, files
    with os.scandir(folder) as entries:
        is_folder = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
    return [name for name, here in is_folder.items() if here], [name for name, here in is_folder.items() if not here]


def modified_ns(path: Path) -> int | None:
    """Return the modification time in ns since 1970, or None if the store does not report it."""
    if not is_remote(path):
        return path.stat().st_mtime_ns
    try:
        return int(_store(path).fs.modified(_store(path).path).timestamp()) * 1_000_000_000
    except NotImplementedError:
        return None


def put(file: Path, path: Path) -> None:
    """Upload a local file to a store in a single operation. Raises OSError."""
    try:
        _store(path).fs.put_file(str(file), _store(path).path)
    except _PROGRAMMING_ERRORS:
        raise
    except Exception as error:
        raise OSError(None, _reason(error), str(path)) from error


def why_unwritable_store(folder: Path) -> str | None:
    """Try to write an empty file into a store. Return the reason if the store refuses it, else None."""
    probe = _store(folder / ".perfkit-probe")
    try:
        probe.fs.pipe_file(probe.path, b"")
    except Exception as error:  # every driver has its own error classes
        return _reason(error)
    with contextlib.suppress(Exception):  # some users may write but not delete
        probe.fs.rm_file(probe.path)
    return None


def _reason(error: Exception) -> str:
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    if isinstance(error, NotImplementedError):
        text = "this store is read-only"
    text = text.strip() or type(error).__name__
    if len(text) > _MAX_REASON_CHARACTERS:
        text = text.splitlines()[0]
    return textwrap.shorten(text, _MAX_REASON_CHARACTERS, placeholder=" …")


def _store(path: Any) -> Any:  # paths of universal-pathlib have attributes that Path lacks
    return path


def _on_web(path: Path) -> bool:
    return is_remote(path) and _store(path).protocol in _WEB


class _StoreFile(io.RawIOBase):
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
            with contextlib.suppress(Exception):  # the data has been read, so a failure to close loses nothing
                self._file.close()
        super().close()


@contextlib.contextmanager
def replacing(path: Path, keep: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary local file to write. The file replaces ``path`` when the block ends, so that
    readers never see a partly written file. The temporary file is deleted if the block fails.

    The folder of ``path`` is created. A file in a store is uploaded in a single operation. Pipes and terminals cannot
    be replaced and are written directly. Raises OSError. If a store refuses the file and ``keep`` is set, the file is
    kept on this machine, and the error names its path."""
    import tempfile

    if is_remote(path):
        with tempfile.TemporaryDirectory(prefix="perfkit-") as folder:
            file = Path(folder) / path.name
            yield file
            try:
                put(file, path)
            except OSError as error:
                raise (_moved_aside(file, error) if keep else error) from None
        return
    if path.is_char_device() or path.is_fifo():
        yield path
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(processes.temporary_name(path.name))
    try:
        yield temporary
        temporary.replace(path)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def check_replaceable(path: Path) -> None:
    """Check, before long work, that :func:`replacing` can write a local ``path``. Raises OSError if not."""
    import tempfile

    if is_remote(path) or path.is_char_device() or path.is_fifo():
        return
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    with tempfile.TemporaryFile(dir=folder):
        pass


def _moved_aside(file: Path, error: OSError) -> OSError:
    import shutil
    import tempfile

    folder = _kept_folder(os.getpid())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # temporary folders may be cleaned up at any time
    if (folder / file.name).exists():
        folder = Path(tempfile.mkdtemp(dir=folder))
    target = shutil.move(file, folder / file.name)
    return OSError(error.errno, f"{error.strerror}; kept as {target}", error.filename)


@functools.cache
def _kept_folder(pid: int) -> Path:
    """Return the folder for files that a store refused. A forked child has another pid, so it gets another folder."""
    import tempfile

    return Path(tempfile.mkdtemp(prefix="perfkit-kept-"))
