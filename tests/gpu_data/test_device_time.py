"""Device time of steps, and launches of device work, against unions and ids computed from torch's own traces."""

from __future__ import annotations

import pytest

from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.devices import device
from perfkit_core.views.merging import table_of
from perfkit_core.views.steps import partition, steps
from tests.support.gpu_data import DEVICE_WORK, PROGRAMS, RUNTIMES, cut, file, live, native_steps, of, union
from tests.support.kineto_events import read_again

BY_STEP = ViewRequest(by=("step",))


@pytest.mark.parametrize("name", PROGRAMS)
def test_partition_of_each_step(name: str) -> None:
    """Kernels compute, and copies are exposed where no kernel runs. Where nothing runs on the device, the loader or any
    other event of the host decides."""
    table = table_of(partition.VIEW, file(name), BY_STEP)
    kernels, copies = ([event.span for event in of(name, *categories)] for categories in
                       (DEVICE_WORK[:1], DEVICE_WORK[1:]))  # fmt: skip
    host = of(name, "cpu_op", "user_annotation", "python_function", "overhead", *RUNTIMES)
    loaders = [event.span for event in host if event.name.startswith("enumerate(DataLoader)")]
    others = [event.span for event in host if not event.name.startswith("ProfilerStep#")]
    collectives = [event.span for event in host if event.name in COLLECTIVE]
    expected = []
    for step in native_steps(name):
        sums, seen, before = {}, [], 0
        for category, spans in (("device_compute", kernels), ("exposed_communication", collectives),
                                ("exposed_copy", copies), ("input_wait", loaders),
                                ("launch_and_host", others), ("idle", [step.span])):  # fmt: skip
            seen += cut(spans, step.span)
            sums[category] = union(seen) - before
            before = union(seen)
        assert before == step.end - step.start
        expected.append(sums)
    assert table[[f"{category}_ns" for category in expected[0]]].to_numpy().tolist() == [
        [*e.values()] for e in expected
    ]
    assert sum(one["device_compute"] for one in expected) > 0


COLLECTIVE = ("c10d::allreduce_", "nccl:all_reduce")
"""Host events of communication. NCCL with one process launches no kernel."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_busy_time_of_the_device(name: str) -> None:
    for trace in (live(name), file(name)):
        if "sync-events" in name and trace is live(name):
            continue  # its handler took records of synchronisation for kernels
        (row,) = (row for row in device.table(trace, ViewRequest()).to_dict("records") if row["device"] == "cuda:0")
        kernels = of(name, "kernel")
        assert row["kernels"] == len(kernels)
        assert row["busy_ns"] == union(event.span for event in kernels)
        assert row["copy_ns"] == union(event.span for event in of(name, "gpu_memcpy"))
        whole = [step.span for step in native_steps(name)]
        inside = sum(union(cut((event.span for event in kernels), step)) for step in whole)
        assert row["busy_in_steps_ratio"] == pytest.approx(inside / sum(end - start for start, end in whole))


@pytest.mark.parametrize("name", PROGRAMS)
def test_device_work_has_its_launch_step_and_delay(name: str) -> None:
    """Each piece of device work has the call with its correlation id, the step of this call, and the delay between
    them."""
    calls = {event.args["correlation"]: event for event in of(name, *RUNTIMES)}
    spans = {int(step.name.partition("#")[2]): step.span for step in native_steps(name)}
    expected = []
    for event in of(name, *DEVICE_WORK):
        call = calls[event.args["correlation"]]
        step = [number for number, (start, end) in spans.items() if start <= call.start < end]
        expected.append((event.name, event.start, event.args["stream"], call.name, event.start - call.start, *step))
    for trace in (read_again(name), file(name)):
        table = trace.events.to_pylist()
        found = []
        for row in table:
            if row["kind"] in ("kernel", "memcpy", "memset"):
                launch = table[row["launched_by"]]
                delay = row["start_ns"] - launch["start_ns"]
                found.append((row["name"], row["start_ns"], row["stream"], launch["name"], delay, row["step"]))
        assert sorted(found) == sorted(expected)
    assert min(row[4] for row in expected) > 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_device_time_launched_in_each_step(name: str) -> None:
    spans = [(step.span, []) for step in native_steps(name)]
    calls = {event.args["correlation"]: event.start for event in of(name, *RUNTIMES)}
    for event in of(name, *DEVICE_WORK):
        for (start, end), launched in spans:
            if start <= calls[event.args["correlation"]] < end:
                launched.append(event.span)
    table = table_of(steps.VIEW, file(name), ViewRequest())
    assert table["device_launched_ns"].tolist() == [union(launched) for _, launched in spans]
    assert table["dur_ns"].tolist() == [end - start for (start, end), _ in spans]
