"""What is particular to torch when a script is recorded: labels of steps, and a warning of older versions."""

from __future__ import annotations

import importlib
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs torch: pip install 'perfkit[torch]'")

from perfkit_core.base.system import packages  # noqa: E402
from perfkit_core.readers.load import load  # noqa: E402
from perfkit_core.recording.step_recording import Ending, Target  # noqa: E402
from perfkit_core.trace.storage import background  # noqa: E402
from perfkit_torch.framework import Updates  # noqa: E402
from perfkit_torch.record import (  # noqa: E402
    EVENTS,
    EVENTS_OF_OPERATOR,
    TorchStepProfiler,
    record_script,
    start_section,
)


def updates(count: int) -> None:
    net = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(net.parameters())
    for _ in range(count):
        net(torch.ones(3, 4)).sum().backward()
        optimizer.step()


@pytest.mark.parametrize("steps", [None, 2])
def test_no_label_outlives_its_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int | None) -> None:
    """torch writes the end of a label into the memory of the recording in which it began. A label that ended in a later
    recording, or was deleted during one, damaged the memory of the training: it wrote 8 bytes into freed memory."""
    opened: list[object] = []

    class Label(torch.profiler.record_function):  # type: ignore[misc]
        def __enter__(self) -> object:
            opened.append(self)
            return super().__enter__()

        def __exit__(self, *error: object) -> None:
            opened.remove(self)
            super().__exit__(*error)

    monkeypatch.setattr(torch.profiler, "record_function", Label)
    recording = record_script(tmp_path, steps, {})
    updates(5)
    assert bool(opened) is (steps is None)
    assert recording.finish().files == 1
    assert not opened
    if steps:  # the script went on; each step has its update
        assert load(tmp_path).rows("name", "Optimizer.step#SGD.step").sum() == 2


def test_short_steps_after_the_window_are_all_timed(tmp_path: Path) -> None:
    """They are ended together, the last ones at the end of the script. While step times are written, none count."""
    recording = record_script(tmp_path, 2, {})
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    for number in range(68):
        optimizer.step()
        if number % 10 == 0:  # step times are also written after some steps that count
            background.shared().flush()
    recorded = recording.finish()
    timed = recorded.timed
    assert timed is not None
    trace = load(tmp_path)
    assert recorded.step_ns == np.median(trace.ints("dur_ns")[trace.rows("kind", "step")])
    assert [step.number for step in timed.unprofiled()][-20:] == list(range(48, 68))


def test_a_warning_of_older_torch_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch up to 2.12 warns at each start of a profiler. With ``-W error``, the warning would end the training."""
    original = torch.profiler.profile.prepare_trace

    def warning(profiler: torch.profiler.profile) -> None:
        warnings.warn("Warning: Profiler clears events at the end of each cycle.", stacklevel=2)
        original(profiler)

    monkeypatch.setattr(torch.profiler.profile, "prepare_trace", warning)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recording = record_script(tmp_path, None, {})
        updates(2)
        assert recording.finish().files == 1
        assert len(start_section({})()) > 0
        with pytest.raises(UserWarning):
            torch.profiler.profile().start()


def test_a_window_with_too_many_events_ends_after_a_complete_step(tmp_path: Path) -> None:
    """The events are estimated from the autograd graph."""
    recording = record_script(tmp_path, None, {"most_events": 100})
    updates(6)
    result = recording.finish()
    trace = load(tmp_path)
    assert result.cut is not None
    assert 1 <= result.steps < 5
    assert len(set(trace.ints("step")[trace.rows("kind", "step")])) == result.steps
    assert {finding.code for finding in trace.quality} >= {"window-ended-early"}


def test_a_step_over_six_thousand_time_steps_fits_into_a_window(tmp_path: Path) -> None:
    """One of an LSTMCell has a million events, by their number and by the estimate, which counts the graph."""
    cell, out, hidden = torch.nn.LSTMCell(1, 4), torch.nn.Linear(4, 1), torch.zeros(2, 4)
    recording = record_script(tmp_path, 1, {})
    optimizer = torch.optim.Adam([*cell.parameters(), *out.parameters()])
    for _ in range(2):
        state, results, before = (hidden, hidden), [], torch._C._autograd._get_sequence_nr()
        for _ in range(60):
            state = cell(torch.ones(2, 1), state)
            results.append(out(state[0]))
        torch.cat(results).sum().backward()
        estimated = EVENTS_OF_OPERATOR * (torch._C._autograd._get_sequence_nr() - before)
        optimizer.step()
    assert recording.finish().steps == 1
    events = len(load(tmp_path))
    assert 0.9 < events / estimated < 1.2
    assert 100 * max(events, estimated) < EVENTS[2]


@pytest.mark.parametrize(("name", "options"), [("SGD", {}), ("SGD", {"momentum": 0.9}), ("Adam", {}), ("RMSprop", {}),
                                               ("Adam", {"fused": True}), ("Adam", {"foreach": True})])  # fmt: skip
@pytest.mark.parametrize("layer", [torch.nn.Linear, lambda size, _: torch.nn.LayerNorm(size)])
def test_the_updates_of_many_small_layers_are_part_of_the_estimate(
    tmp_path: Path, name: str, options: dict[str, object], layer: Callable[[int, int], object]
) -> None:
    """They have up to three times as many events as the operators of the layers."""
    net = torch.nn.Sequential(*(layer(4, 4) for _ in range(50)))
    optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.01, **options)
    profiler = TorchStepProfiler(Target(tmp_path, {}))
    for recorded in (False, True):  # the first update makes the state
        if recorded:
            profiler.start(0)
        optimizer.zero_grad()
        net(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    estimated = profiler.estimate().events()
    profiler.hold(Ending.ENDED)
    events = profiler.events()
    assert events is not None
    assert 0.7 < events / estimated < 1.3


def test_the_start_of_a_script_is_not_kept_beside_a_part_of_a_step(tmp_path: Path) -> None:
    """Between the two lies the first step, which is not recorded. It would seem that no operator runs meanwhile."""
    recording = record_script(tmp_path, None, {"most_events": 100})
    torch.eye(3)
    updates(1)
    weight = torch.ones(8, 8, requires_grad=True)
    end = time.monotonic() + 30
    while recording._recording.cut is None and time.monotonic() < end:
        (weight @ weight).sum()
    result = recording.finish()
    assert (result.files, result.steps, str(result.cut)) == (1, 0, "it would have more than 100 events")
    trace = load(tmp_path)
    assert trace.rows("name", "aten::mm").any()
    assert not trace.rows("name", "aten::eye", "Optimizer.step#SGD.step").any()
    (finding,) = (finding for finding in trace.quality if finding.code == "window-ended-early")
    assert "0 steps are complete" in str(finding.text)


def test_objects_are_only_searched_for_if_an_optimizer_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search takes 0.1 s, and a script that has just imported torch has none."""

    class Unseen(torch.optim.Optimizer):  # type: ignore[misc]
        def __init__(self) -> None: ...

    monkeypatch.setattr(importlib.import_module("torch.optim.optimizer"), "Optimizer", Unseen)
    monkeypatch.setattr(packages, "instances", lambda base: 1 / 0)
    updates = Updates(lambda: None)
    assert updates.optimizers == 0
    updates.end()


class Twice(torch.optim.SGD):
    def step(self, closure: object = None) -> None:  # type: ignore[override]
        super().step()


def test_an_update_that_calls_the_update_of_its_base_is_one_step(tmp_path: Path) -> None:
    """torch calls its hooks for both methods."""
    model = torch.nn.Linear(2, 2)
    torch.optim.SGD(model.parameters())
    recording = record_script(tmp_path, None, {})
    optimizer = Twice(model.parameters(), lr=0.1)
    for _ in range(4):
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()
    assert recording.finish().steps == 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of modules that torch.compile imports
def test_a_compiled_update_stays_one_graph(tmp_path: Path) -> None:
    """The profiler is stopped between the graph and the rest of the method, which torch does not compile."""
    compiled: list[object] = []
    model = torch.nn.Linear(2, 2)
    recording = record_script(tmp_path, 2, {})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend=lambda graph, _: compiled.append(graph) or graph)
    for _ in range(10):
        model(torch.ones(2, 2)).sum().backward()
        step()
    assert recording.finish().steps == 2
    assert len(compiled) == 1


def test_a_script_without_steps_and_with_too_many_events_says_what_was_left_out(tmp_path: Path) -> None:
    recording = record_script(tmp_path, None, {"most_events": 100})
    weight = torch.ones(8, 8, requires_grad=True)
    end = time.monotonic() + 30
    while recording._in_start and time.monotonic() < end:
        (weight @ weight).sum()
    result = recording.finish()
    assert result.steps == 0
    assert str(result.cut) == "it would have more than 100 events"
    text = next(str(finding.text) for finding in load(tmp_path).quality if finding.code == "window-ended-early")
    assert text == "recording ended early, because it would have more than 100 events"


def test_recorded_stacks_have_hardly_any_calls_of_perfkit(tmp_path: Path) -> None:
    """To search all objects of the process for optimizers took 670,000 calls, and 1 GB when the profiler stopped."""
    recording = record_script(tmp_path, None, {"stacks": True})
    torch.ones(3).sum()
    recording.finish()
    assert 0 < len(load(tmp_path).rows("kind", "python")) < 5_000


def test_the_next_optimizer_takes_the_place_of_a_deleted_one_within_the_window(tmp_path: Path) -> None:
    """As in a cross-validation with few steps. After the window, the unprofiled steps are of one training only."""
    recording = record_script(tmp_path, 6, {})
    for _ in range(3):
        updates(4)
    assert recording.finish().steps == 6
    assert recording._ends == 8


@pytest.mark.parametrize(("calls", "options"), [(120, {}), (20, {}), (120, {"most_events": 1 << 20})])
def test_a_script_without_steps_is_recorded_for_some_calls_of_its_model(
    calls: int, options: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unless a limit of the events was chosen."""
    recording = record_script(tmp_path, None, options)
    model = [("model", torch.nn.Linear.forward.__code__, calls)]
    monkeypatch.setattr(recording._sampler, "repeated", lambda: model)
    for _ in range(10):
        recording._check()
    ended = calls > 100 and not options
    assert recording._in_start is not ended
    cut = recording.finish().cut
    assert (cut is not None and str(cut)) == (ended and "Linear.forward ran more than 100 times")
