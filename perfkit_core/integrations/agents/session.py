"""The profiles that an agent reads. The last ones are kept, so that further questions do not read the files again.

An agent reads only below the roots of the server."""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from perfkit_core.base.system.paths import (
    as_path,
    exists,
    is_folder,
    is_remote,
    modified_ns,
    reaching,
    walk,
    without_secrets,
)
from perfkit_core.errors import UsageError
from perfkit_core.integrations.agents.answers import Content, digest
from perfkit_core.integrations.agents.requests import Reading
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import LoadedProfile, Profile, opened
from perfkit_core.readers.load import beside, load_all
from perfkit_core.readers.read_options import ReadOptions, read_options
from perfkit_core.trace.model.trace import Trace

T = TypeVar("T")

TOGETHER_BYTES: Final = 64 << 20
"""Files of several ranks are read as one trace up to this total size."""
_PROFILES: Final = 2
_ANSWERS: Final = 8


class Session:
    """The state of a server: its roots, and the profiles and answers that it keeps."""

    def __init__(self, roots: Roots, allow_run: bool = False) -> None:
        self.roots = roots
        self.allow_run = allow_run
        self.cancelled = threading.Event()
        """Set while the client no longer waits for the running call. Processes of the call are then ended."""
        self._profiles: OrderedDict[str, Profile] = OrderedDict()
        self._answers: OrderedDict[str, Content] = OrderedDict()

    def profile(self, request: Reading) -> Profile:
        """Return the profile of a request."""
        paths, options = self.paths(request.sources), self.read_options(request)
        side_files = map(as_path, (*options.graph_captures, *options.compile_info))
        key = digest([*map(str, paths)], str(options), fingerprint([*paths, *side_files]))
        return _cached(self._profiles, key, _PROFILES, lambda: _opened(paths, options))

    def trace(self, request: Reading) -> Trace:
        """Return the profile of a request as one trace."""
        profile, paths = self.profile(request), self.paths(request.sources)
        if isinstance(profile, LoadedProfile):
            return profile.trace
        return _named(load_all(paths, self.read_options(request)), paths)

    def read_options(self, request: Reading) -> ReadOptions:
        return read_options(
            partial=request.partial, step_on=request.step_on, step_kind=request.step_kind,
            graph_capture=self.paths(request.graph_capture), compile_info=self.paths(request.compile_info),
        )  # fmt: skip

    def paths(self, texts: Sequence[str]) -> list[Path]:
        return [self.roots.path(text) for text in texts]

    def files(self, request: Any) -> list[Path]:
        """Return all paths that a request names."""
        names = ("sources", "graph_capture", "compile_info", "base", "other")
        lists = [getattr(request, name, ()) for name in names]
        texts = [text for values in lists if isinstance(values, list) for text in values]
        texts += filter(None, [getattr(request, "peaks", None)])
        folder = getattr(request, "folder", None)
        return [*self.paths(texts), *([] if folder is None else below(self.roots.folder(folder)))]

    def ran(self, key: str, again: bool, make: Callable[[], Content]) -> Content:
        """Return the content of a tool that runs code. It runs again, unless only a further part is asked for."""
        if again and key not in self._answers:
            hint = "repeat the request without a cursor, which runs the script again"
            raise UsageError("the cursor is stale: the output is no longer kept", hint)
        if not again:
            self._answers.pop(key, None)
        return self.answer(key, make)

    def answer(self, key: str, make: Callable[[], Content]) -> Content:
        return _cached(self._answers, key, _ANSWERS, make)


def _cached(cache: OrderedDict[str, T], key: str, most: int, make: Callable[[], T]) -> T:
    if key not in cache:
        cache[key] = make()
    cache.move_to_end(key)
    while len(cache) > most:
        cache.popitem(last=False)
    return cache[key]


def _opened(paths: Sequence[Path], options: ReadOptions) -> Profile:
    profile = opened(paths, options, together_bytes=TOGETHER_BYTES)
    return replace(profile, trace=_named(profile.trace, paths)) if isinstance(profile, LoadedProfile) else profile


def _named(trace: Trace, paths: Sequence[Path]) -> Trace:
    more = f" and {len(paths) - 1} more" if paths[1:] else ""
    return trace.with_meta(source=f"{without_secrets(paths[0])}{more}")


_MOST_FILES: Final = 100_000
"""Maximum number of files in a folder that is given as a source."""


class Roots:
    """Folders, or addresses of folders in stores. Relative paths begin at the first local folder or store."""

    def __init__(self, folders: Iterable[str | os.PathLike[str]]) -> None:
        paths = [as_path(os.fspath(folder)) for folder in folders]
        self.stores = [str(path).rstrip("/") + "/" for path in paths if is_remote(path)]
        self.folders = [Path(os.path.realpath(path)) for path in paths if not is_remote(path)]
        for folder in self.folders:
            if not folder.is_dir():
                raise UsageError(f"{folder}: no such folder", "name an existing folder with --root")

    @property
    def shown(self) -> str:
        return ", ".join([*map(str, self.folders), *self.stores])

    def path(self, text: str) -> Path:
        """Return the path that an agent means. Raises UsageError if the path, or any file that would be read with it,
        lies outside the roots."""
        path = self.folder(text)
        if is_remote(path):
            return path
        neighbours = beside(path, get_plugins()) if path.is_file() else ()
        for number, link in enumerate(linked([path, *neighbours])):
            if number > _MOST_FILES:
                raise UsageError(f"{text}: the folder has more than {_MOST_FILES:,} files", "name a folder inside it")
            self._check(link, text)
        return path

    def folder(self, text: str) -> Path:
        """Return the path that an agent means. What is below a folder is not checked. Raises UsageError if the path
        lies outside the roots."""
        if "://" in text or text.startswith("file:"):
            return self._in_store(text)
        if not text or "\0" in text:
            raise UsageError(f"{text!r} is not a path", "name a run folder or a trace file")
        path = Path(text)
        if not path.is_absolute() and not self.folders:
            return self._in_store(self.stores[0] + text.removeprefix("./"))
        if not path.is_absolute():
            path = self.folders[0] / path if self.folders[0] != Path.cwd().resolve() else path
        self._check(path, text)
        return path

    def holds(self, path: Path) -> bool:
        """Return whether the file that a path leads to lies in a root."""
        if is_remote(path):
            return any(str(path).startswith(root) for root in self.stores)
        real = Path(os.path.realpath(path))
        return any(real == folder or folder in real.parents for folder in self.folders)

    def holds_all(self, path: Path) -> bool:
        """Return whether a file, or all files of a folder, lie in a root."""
        return self.holds(path) if is_remote(path) else all(map(self.holds, linked([path])))

    def _check(self, path: Path, text: str) -> None:
        if not self.holds(path):
            link = "" if str(path) == text or not path.is_symlink() else f" ({path.name} is a link)"
            raise UsageError(f"{text}: outside of the folders that may be read{link}", f"allowed: {self.shown}")

    def _in_store(self, text: str) -> Path:
        decoded, address = "", text
        while decoded != address:  # a server may decode an address more than once
            decoded, address = address, unquote(address)
        inside = any(f"{text.rstrip('/')}/".startswith(root) for root in self.stores)
        steps = {".", ".."}.intersection(re.split(r"[/\\]", decoded))
        if not inside or steps or any(sign in text for sign in "?#"):
            raise UsageError(f"{text}: outside of the folders that may be read", f"allowed: {self.shown}")
        return as_path(text)


def linked(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield every file and folder below the paths, also behind links to folders. Each folder is visited once."""
    visited: set[str] = set()
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        yield path
        if not path.is_dir():
            continue
        real = os.path.realpath(path)
        if real not in visited:
            visited.add(real)
            waiting += (path / name for name in sorted(os.listdir(path)))  # noqa: PTH208 names are enough


def below(folder: Path) -> list[Path]:
    """Return the files below a folder that are no links, or the folder itself if it is in a store."""
    if is_remote(folder):
        return [folder]
    files = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
    return [file for file in files if not file.is_symlink()]


def fingerprint(sources: Sequence[Path]) -> str:
    """Return a digest of the files of the sources, and of the files next to them that are read with them: their names,
    sizes and modification times."""
    stats: list[tuple[str, int | None, int | None]] = []
    files = (source for source in sources if not is_remote(source) and source.is_file())
    for source in [*sources, *(other for file in files for other in beside(file, get_plugins()))]:
        if is_remote(source):
            stats += ((str(path), None, modified_ns(path)) for path in _stored(source))
            continue
        for path in linked([source]):
            if path.is_file():
                stat = path.stat()
                stats.append((str(path), stat.st_size, stat.st_mtime_ns))
    return hashlib.blake2b(repr(sorted(stats, key=repr)).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _stored(source: Path) -> Iterator[Path]:
    """Yield the files of a source in a store. Raises SourceError."""
    with reaching(source):
        if is_folder(source):
            yield from (folder / name for folder, _, names in walk(source) for name in names)
        elif exists(source):
            yield source
