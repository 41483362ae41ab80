"""``perfkit.profile`` chooses the framework, and refuses wrong arguments. tests/adapters records."""

from __future__ import annotations

import copy
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import perfkit
from perfkit_core.errors import UsageError
from perfkit_core.plugins.frameworks import Recorder
from perfkit_core.recording import profiled_loop


class Steps:
    """A recording that notes what it is told."""

    def __init__(self, run_dir: Any, steps: Any, **options: Any) -> None:
        self.given, self.told, self.step = (run_dir, steps, options), [], 0
        self.waits: list[str] = []

    def begin(self, step: int) -> None:
        self.told.append(f"begin {step}")

    def step_ended(self) -> None:
        self.step += 1
        self.told.append("step")

    def wait_begins(self, source: Any, label: str) -> None:
        self.waits.append(label)

    def wait_ended(self) -> None:
        self.waits.append("ended")

    def resume(self) -> None:
        self.told.append("resume")

    def pause(self) -> None:
        self.told.append("pause")

    def abort(self) -> None:
        self.told.append("abort")

    def finish(self) -> None:
        self.told.append("finish")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Steps]:
    """Two frameworks, fast and slow, which record with :class:`Steps`. Return the recordings."""
    recordings: list[Steps] = []

    def start(*given: Any, **options: Any) -> Steps:
        recordings.append(Steps(*given, **options))
        return recordings[-1]

    recorders = {name: Recorder(print, loop=start) for name in ("fast", "slow")} | {"none": Recorder(print)}
    monkeypatch.setattr(profiled_loop, "get_plugins", lambda: SimpleNamespace(recorders=lambda: recorders))
    monkeypatch.setattr(profiled_loop.atexit, "register", lambda function: function)
    return recordings


def test_the_imported_framework_records(made: list[Steps], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no framework is imported; give framework='fast' or 'slow'"):
        perfkit.profile([], tmp_path)
    monkeypatch.setitem(sys.modules, "slow", SimpleNamespace())
    perfkit.profile([], tmp_path, warmup=2)
    assert made[0].given == (tmp_path, (10, 19), {"on_demand": False, "warmup": 2})
    monkeypatch.setitem(sys.modules, "fast", SimpleNamespace())
    with pytest.raises(UsageError, match="fast and slow are imported; give framework='fast' or 'slow'"):
        perfkit.profile([], tmp_path / "other")
    perfkit.profile([], tmp_path / "demand", framework="slow", on_demand=True)
    assert made[1].given[1:] == (None, {"on_demand": True})
    with pytest.raises(UsageError, match="unknown framework 'none'; known: fast, slow"):
        perfkit.profile([], tmp_path / "none", framework="none")


def test_one_recording_for_a_folder(made: list[Steps], tmp_path: Path) -> None:
    for _ in range(2):
        for _ in perfkit.profile([1, 2], tmp_path, framework="fast"):
            pass
    (recording,) = made
    assert recording.told == ["begin 0", "step", "step", "pause", "resume", "step", "step", "pause"]
    with pytest.raises(UsageError, match="records into this folder, with other arguments; give another folder"):
        perfkit.profile([], tmp_path, window=(3, 4), framework="fast")


@pytest.mark.parametrize("interactive", [False, True])
def test_a_cell_of_a_notebook_that_runs_again_is_told(
    made: list[Steps], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    interactive: bool,
) -> None:  # fmt: skip
    if interactive:
        monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    for _ in range(3):
        list(perfkit.profile(range(3), tmp_path, window=(0, 1), framework="fast"))
    assert len(caplog.records) == interactive
    if interactive:
        assert "steps 0 to 1 were recorded before, and this loop goes on with step 3" in caplog.text


def test_the_end_of_the_process(made: list[Steps], tmp_path: Path) -> None:
    """Within the loop, the recording ends with a partial step."""
    loop = perfkit.profile([1, 2], tmp_path, framework="fast")
    iterator = iter(loop)
    next(iterator)
    loop._recording.end()
    assert made[0].told == ["begin 0", "abort"]
    iterator.close()  # type: ignore[attr-defined]
    loop._recording.end()
    assert made[0].told[-1] == "finish"


def test_any_iterable_is_profiled(made: list[Steps], tmp_path: Path) -> None:
    def letters() -> Iterator[str]:
        yield from "ab"

    loop = perfkit.profile(letters(), tmp_path, framework="fast")
    with pytest.raises(TypeError):
        len(loop)
    assert list(loop) == ["a", "b"]
    wait = "perfkit.input:letters"
    assert made[0].waits == [wait, wait, "ended", wait, "ended", wait, "ended"]
    assert list(perfkit.profile((1, 2), tmp_path / "class", framework="fast")) == [1, 2]
    assert made[1].waits[0] == "perfkit.input:tuple"


@pytest.mark.parametrize(
    ("arguments", "options", "says"),
    [
        ((3, "run"), {}, "loader is of the type int, and yields no batches; example: perfkit.profile(loader,"),
        (("run", [1]), {}, "loader is of the type str, and yields no batches; example: perfkit.profile(loader,"),
        (([1], 3), {}, "run_dir is of the type int, and no path; example: perfkit.profile(loader,"),
        (([1], "run", 3), {}, "window=3 is no pair of steps; give the first and the last step to record, for example "
         "window=(10, 19)"),
        (([1], "run", "ab"), {}, "window='ab' is no pair of steps; "),
        (([1], "run", (1, 2, 3)), {}, "window=(1, 2, 3) is no pair of steps; "),
        (([1], "run", (5, 2)), {}, "window=(5, 2) selects no steps; "),
        (([1], "run"), {"steps": (1, 2)}, "perfkit.profile has no argument steps; give window=(first, last)"),
        (([1], "run"), {"wait": 1}, "perfkit.profile has no argument wait; give window=(first, last)"),
        (([1], "run"), {"framework": "slwo"}, "unknown framework 'slwo'; did you mean slow? known: fast, slow"),
        (([1], "run"), {"framework": 3}, "unknown framework 3; known: fast, slow"),
    ],
)  # fmt: skip
def test_mistakes_are_refused_before_the_loop(
    made: list[Steps], arguments: tuple[Any, ...], options: dict[str, Any], says: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError) as caught:
        perfkit.profile(*arguments, **options)
    assert str(caught.value).startswith(says)
    assert made == []


class Sampled:
    """A loader as frameworks have it: with a length, no truth value of its own, and attributes to be set."""

    def __init__(self, items: int) -> None:
        self.items, self.epoch = range(items), 0

    def __iter__(self) -> Iterator[int]:
        return iter(self.items)

    def __len__(self) -> int:
        return len(self.items)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_the_loop_behaves_as_the_loader(made: list[Steps], tmp_path: Path) -> None:
    loader = Sampled(3)
    loop: Any = perfkit.profile(loader, tmp_path, framework="fast")
    assert loop
    assert not perfkit.profile(Sampled(0), tmp_path, framework="fast")
    assert perfkit.profile(iter("ab"), tmp_path, framework="fast"), "a generator is true"
    loop.set_epoch(2)
    assert loader.epoch == loop.epoch == 2
    loop.epoch = loop.own = 3
    assert (loader.epoch, vars(loader)["own"]) == (3, 3)
    with pytest.raises(AttributeError):
        perfkit.profile([1], tmp_path, framework="fast").epoch = 1  # type: ignore[attr-defined]
    assert set(vars(loader)) == {"items", "epoch", "own"}, "nothing of the loop"
    copied = copy.copy(loop)
    assert (copied._loader, len(copied)) == (loader, 3)
    assert weakref.ref(loop)() is loop
