"""The profiles that an agent reads. The last ones are kept, so that further questions do not read the files again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, TypeVar

from perfkit_core.base.system.paths import as_path, without_secrets
from perfkit_core.errors import UsageError
from perfkit_core.integrations.agents.answers import Content
from perfkit_core.integrations.agents.budget import digest
from perfkit_core.integrations.agents.requests import Reading
from perfkit_core.integrations.agents.roots import Roots, below, fingerprint
from perfkit_core.ranks.profile import LoadedProfile, Profile, opened
from perfkit_core.readers.load import load_all
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
