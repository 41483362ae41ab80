"""Python frames whose return was not recorded end where the recorded callers of other frames say so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import perfkit
from perfkit_core.trace.assembly import python_frames
from tests.support.chrome import event, write
from tests.support.events import codes, column, host, names_of_rows, trace
from tests.support.scanned import both


def frame(name: str, start: int, end: int, number: int, caller: int | None, **more: Any) -> dict[str, Any]:
    return host(name, "python", start, end - start, frame=number, caller=caller, **more)


def message(found: perfkit.Trace, code: str) -> str:
    return next(finding.message for finding in found.quality if finding.code == code)


@pytest.mark.parametrize("end", [900, 1000, 5000])
@pytest.mark.parametrize("process", [1, 2])
def test_a_frame_without_a_return_ends_where_its_caller_calls_the_next(end: int, process: int) -> None:
    """``load`` lasts to the end of the recording, before, with or after its caller. Another process uses the same
    numbers."""
    other = {"pid": process, "tid": 9}
    found = trace([
        frame("main", 0, 1000, 1, None),
        frame("load", 10, end, 2, 1),
        frame("open", 11, end, 3, 2),
        frame("step", 300, 400, 4, 1),
        frame("again", 500, 600, 5, 1),
        host("aten::mm", "operator", 310, 20),
        *([frame("other", 0, 2000, 1, None, **other), frame("inner", 20, 1900, 2, 1, **other)] * (process - 1)),
    ])  # fmt: skip
    parents = names_of_rows(found, "parent")
    assert [parents[name] for name in ("load", "open", "step", "again", "aten::mm")] == [
        "main", "load", "main", "main", "step",
    ]  # fmt: skip
    durations = column(found, "dur_ns")
    assert (durations["load"], durations["open"]) == (290, 289)
    assert message(found, "python-returns-lost").startswith("the returns of 2 Python frames")
    if process == 2:
        assert (durations["inner"], parents["inner"]) == (1880, "other")


def test_a_frame_without_a_caller_is_cut_off_by_the_next_of_its_thread() -> None:
    rows = [
        frame("worker", 0, 1000, 1, None),
        frame("first", 100, 990, 2, None, tid=2),
        frame("second", 200, 300, 3, None, tid=2),
        frame("inside", 210, 220, 4, 3, tid=2),
    ]
    found = trace(rows)
    assert column(found, "dur_ns")["first"] == 100
    assert names_of_rows(found, "parent") == {"worker": None, "first": None, "second": None, "inside": "second"}


def test_equal_starts_are_sorted_again() -> None:
    """The table is sorted by descending durations, so a frame that is cut off may change its place."""
    rows = [
        frame("main", 0, 1000, 1, None),
        frame("load", 10, 1000, 2, 1),
        host("range", "annotation", 10, 500, tid=2),
        frame("step", 20, 30, 3, 1),
    ]
    assert list(column(trace(rows), "dur_ns").items()) == [("main", 1000), ("range", 500), ("load", 10), ("step", 10)]


def test_frames_with_other_signs_of_a_return_keep_their_times() -> None:
    """torch loses the callers of some frames on ROCm: it then names a frame farther up, although the enclosing frame
    has a return."""
    rows = [
        frame("main", 0, 1000, 1, None),
        frame("relu", 10, 90, 2, 1),
        frame("hook", 20, 30, 3, 1),
        frame("hook", 40, 50, 4, 1),
        frame("step", 100, 900, 5, 1),
        frame("mistaken", 200, 300, 6, 1),
        frame("called", 400, 500, 7, 5),
    ]
    found = trace(rows)
    assert column(found, "dur_ns")["relu"] == 80
    assert column(found, "dur_ns")["step"] == 800
    assert names_of_rows(found, "parent")["hook"] == "relu"
    assert message(found, "python-callers-differ").startswith("the recorded callers of 3 Python frames")
    assert "python-returns-lost" not in codes(found)


@pytest.mark.parametrize("caller", [None, 77])
def test_without_a_known_caller_the_times_decide(caller: int | None) -> None:
    """Older recordings name no caller; in the part of a recording, the frame of the caller may be missing."""
    rows = [frame("main", 0, 1000, 1, caller), frame("load", 10, 1000, 2, caller), frame("step", 20, 30, 3, caller)]
    found = trace(rows)
    assert names_of_rows(found, "parent") == {"main": None, "load": "main", "step": "load"}
    assert not codes(found) & {"python-returns-lost", "python-callers-differ"}


@given(
    st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(-1, 9), st.integers(1, 2), st.booleans()),
        min_size=1, max_size=10,
    )
)  # fmt: skip
def test_the_fast_check_overlooks_nothing(frames: list[tuple[int, int, int, int, bool]]) -> None:
    """What the fast check accepts, the exact search leaves as it is."""
    rows = [
        host(str(i), "python", start * 10_000, length * 10_000, tid=thread, frame=i, caller=max(min(caller, i - 1), -1))
        for i, (start, length, caller, thread, _) in enumerate(frames)
    ]
    for row, (*_, without) in zip(rows, frames, strict=True):
        row["caller"] = None if without or row["caller"] < 0 else row["caller"]
    with pytest.MonkeyPatch.context() as patch:
        with_check = trace(rows)
        patch.setattr(python_frames, "_returned", lambda *_: False)
        assert with_check.events.equals(trace(rows).events)


def test_both_readers_deliver_the_numbers_and_keep_the_arguments(tmp_path: Path) -> None:
    """Numbers may be texts, null or no numbers at all."""
    identifiers: list[tuple[Any, Any]] = [(1, None), ("2", "1"), (3, 1), (4, 3), (5.5, 4), (None, 1), (-1, 1), (6, "x")]
    events = [
        event(f"f{i}", 10 * i, 1000 - i, cat="python_function", pid=1, tid=1,
              args={"Python parent id": caller, "Python id": number, "Ev Idx": i})
        for i, (number, caller) in enumerate(identifiers)
    ]  # fmt: skip
    path = write(tmp_path / "trace.json", events)
    assert not both(path)
    found = perfkit.load(path)
    assert '"Python parent id":1' in found.events["args"][2].as_py()
    assert "python-returns-lost" in codes(found)
