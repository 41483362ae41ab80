"""``profile``: record some steps of a loop over a data loader, with the framework that the program uses."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Iterable, Iterator
from typing import Any, Final

from perfkit_core.base.system import failures, paths
from perfkit_core.errors import UsageError
from perfkit_core.plugins.manager import chosen_framework, get_plugins
from perfkit_core.recording.schedule import step_range
from perfkit_core.recording.step_recording import StepRecording
from perfkit_core.recording.throughput.loop import Item, WrappedLoader
from perfkit_core.trace.assembly.labels import input_label

WINDOW: Final = (10, 19)
_EXAMPLE: Final = 'example: perfkit.profile(loader, "runs/baseline", window=(10, 19))'
_OF_CYCLES: Final = ("steps", "wait", "active", "repeat", "skip_first")
"""Arguments of a callback that choose steps in other ways."""


class _Recording:
    """The recording of all loops of this process over one run folder. ``arguments`` are those of :func:`profile`."""

    def __init__(self, recording: StepRecording, arguments: dict[str, Any]) -> None:
        self.recording, self.arguments = recording, arguments
        self.inside = self._begun = self._explained = False

    def enter(self) -> None:
        """Begin the first step, or go on after the last loop, for example with the next epoch."""
        self.inside = True
        if self._begun:
            self.recording.resume()
            self._tell()
            return
        self._begun = True
        self.recording.begin(0)
        atexit.unregister(self.recording.abort)
        atexit.register(self.end)

    def leave(self) -> None:
        self.inside = False
        self.recording.pause()

    def end(self) -> None:
        """Write the rest when the process ends, also from within the loop."""
        (self.recording.abort if self.inside else self.recording.finish)()

    def _tell(self) -> None:
        """Say once why nothing more is recorded, if a notebook runs a loop again."""
        window = self.arguments["window"]
        if window is not None and hasattr(sys, "ps1") and self.recording.step > window[1] and not self._explained:
            self._explained = True
            text = f"steps {window[0]} to {window[1]} were recorded before, and this loop goes on with step "
            failures.tell(f"{text}{self.recording.step}: give another folder to record again")


_recordings: dict[tuple[int, str], _Recording] = {}
"""Process and run folder → recording."""


class ProfiledLoop(WrappedLoader[Item]):
    """The loader whose steps are recorded while it is iterated. See :func:`profile`."""

    __slots__ = ("_recording",)

    def __init__(self, loader: Iterable[Item], recording: _Recording) -> None:
        super().__init__(loader)
        self._recording = recording

    def __iter__(self) -> Iterator[Item]:
        if self._recording.inside:  # a loop within the loop belongs to the steps of the outer one
            yield from self._loader
            return
        self._recording.enter()
        steps, label = self._recording.recording, input_label(self._loader)
        try:
            steps.wait_begins(self._loader, label)
            iterator = iter(self._loader)
            steps.wait_begins(iterator, label)  # goes on with the wait
            for item in iterator:
                steps.wait_ended()
                yield item
                steps.step_ended()
                steps.wait_begins(iterator, label)
        finally:  # also if the loop is left by break or an exception
            steps.wait_ended()
            self._recording.leave()


def profile(
    loader: Iterable[Item],
    run_dir: paths.PathLike,
    window: tuple[int, int] | None = None,
    *,
    framework: str | None = None,
    on_demand: bool = False,
    **options: Any,
) -> ProfiledLoop[Item]:
    """Return the loader. While a loop iterates it, the steps of ``window`` are recorded into ``run_dir``.

    ``for batch in perfkit.profile(loader, "runs/baseline", window=(10, 19)): train(batch)``

    - ``loader``: any iterable. The result has its length and its attributes. The wait for each item is recorded as data
      loading. The loaders of a framework record it themselves.
    - ``window``: the numbers of the first and the last recorded step (default 10 to 19). A step is the wait for a batch
      and the body of the loop. Steps are numbered from 0 over all loops of this process with the same ``run_dir``, so
      ``profile`` may be called in each epoch. A step in which the loop is left (``break``, an exception) is not
      counted.
    - ``framework``: the framework whose profiler records. By default, the one that the program has imported.
    - ``on_demand``: record when ``perfkit capture`` asks, instead of a window.
    - ``options``: ``warmup``, ``also``, and arguments of the framework's profiler, such as ``record_shapes=True``.

    Raises UsageError for invalid arguments. Later errors are logged, and do not disturb the loop."""
    key = os.getpid(), _checked(loader, run_dir, options)
    if window is not None:
        window = step_range("window", window)
    elif not on_demand:
        window = WINDOW
    arguments = {"window": window, "framework": framework, "on_demand": on_demand, **options}
    entry = _recordings.get(key)
    if entry is None:
        loops = {name: recorder.loop for name, recorder in get_plugins().recorders().items() if recorder.loop}
        name = chosen_framework(loops, framework, f"give framework={' or '.join(map(repr, loops))}")
        recording = loops[name](run_dir, window, on_demand=on_demand, **options)
        entry = _recordings[key] = _Recording(recording, arguments)
    elif entry.arguments != arguments:
        text = f"{run_dir}: another loop of this process records into this folder, with other arguments"
        raise UsageError(text, "give another folder")
    return ProfiledLoop(loader, entry)


def _checked(loader: object, run_dir: Any, options: Iterable[str]) -> str:
    """Return the identity of the run folder. Raises UsageError for wrong types, which are often swapped arguments."""
    if isinstance(loader, (str, bytes, os.PathLike)) or not (
        hasattr(loader, "__iter__") or hasattr(loader, "__getitem__")
    ):
        raise UsageError(f"loader is of the type {type(loader).__name__}, and yields no batches", _EXAMPLE)
    for name in options:
        if name in _OF_CYCLES:
            raise UsageError(f"perfkit.profile has no argument {name}", "give window=(first, last)")
    try:
        return paths.identity(paths.as_path(paths.absolute(run_dir)))
    except TypeError:
        raise UsageError(f"run_dir is of the type {type(run_dir).__name__}, and no path", _EXAMPLE) from None
