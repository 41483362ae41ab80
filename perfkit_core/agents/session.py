"""The profiles that an agent reads. The last ones are kept, so that further questions do not read the files again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from perfkit_core.agents.answers import Content
from perfkit_core.agents.budget import digest
from perfkit_core.agents.requests import Reading
from perfkit_core.agents.roots import Roots, below, fingerprint
from perfkit_core.errors import UsageError
from perfkit_core.model.trace import Trace
from perfkit_core.ranks.profile import LoadedProfile, Profile, opened
from perfkit_core.readers import choices
from perfkit_core.readers.load import load
from perfkit_core.system.paths import as_path, without_secrets

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

    @contextmanager
    def reading(self, request: Reading) -> Iterator[Profile]:
        """Provide the profile of a request. All files that are read in this context are read as the request says."""
        paths = self.places(request.sources)
        chosen = self.choices(request)
        others = map(as_path, (*chosen.graph_captures, *chosen.compile_info))
        key = digest([*map(str, paths)], request.partial, str(chosen), fingerprint([*paths, *others]))
        with choices.choosing(chosen):
            yield _kept(self._profiles, key, _PROFILES, lambda: _opened(paths, request.partial))

    @contextmanager
    def trace(self, request: Reading) -> Iterator[Trace]:
        """Provide the profile of a request as one trace."""
        with self.reading(request) as profile:
            paths = self.places(request.sources)
            if isinstance(profile, LoadedProfile):
                yield profile.trace
            else:
                yield _named(load(paths, partial=request.partial), paths)

    def choices(self, request: Reading) -> choices.Choices:
        return choices.including(
            step_on=request.step_on, step_kind=request.step_kind, graph_capture=self.places(request.graph_capture),
            compile_info=self.places(request.compile_info),
        )  # fmt: skip

    def places(self, texts: Sequence[str]) -> list[Path]:
        return [self.roots.place(text) for text in texts]

    def files(self, request: Any) -> list[Path]:
        """Return all paths that a request names."""
        names = ("sources", "graph_capture", "compile_info", "base", "other")
        lists = [getattr(request, name, ()) for name in names]
        texts = [text for one in lists if isinstance(one, list) for text in one]
        texts += filter(None, [getattr(request, "peaks", None)])
        folder = getattr(request, "folder", None)
        return [*self.places(texts), *([] if folder is None else below(self.roots.folder(folder)))]

    def ran(self, key: str, again: bool, make: Callable[[], Content]) -> Content:
        """Return the content of a tool that runs code. It runs again, unless only a further part is asked for."""
        if again and key not in self._answers:
            hint = "repeat the request without a cursor, which runs the script again"
            raise UsageError("the cursor is stale: the output is no longer kept", hint)
        if not again:
            self._answers.pop(key, None)
        return self.answer(key, make)

    def answer(self, key: str, make: Callable[[], Content]) -> Content:
        return _kept(self._answers, key, _ANSWERS, make)


def _kept(cache: OrderedDict[str, T], key: str, most: int, make: Callable[[], T]) -> T:
    if key not in cache:
        cache[key] = make()
    cache.move_to_end(key)
    while len(cache) > most:
        cache.popitem(last=False)
    return cache[key]


def _opened(paths: Sequence[Path], partial: bool) -> Profile:
    profile = opened(paths, partial, together_bytes=TOGETHER_BYTES)
    return LoadedProfile(_named(profile.trace, paths)) if isinstance(profile, LoadedProfile) else profile


def _named(trace: Trace, paths: Sequence[Path]) -> Trace:
    more = f" and {len(paths) - 1} more" if paths[1:] else ""
    return trace.with_meta(source=f"{without_secrets(paths[0])}{more}")
