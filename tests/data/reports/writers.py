"""Files of other writers: Ascend's profiler, torch's ``EventList.export_chrome_trace``, torch's old autograd profiler,
back ends outside of torch, and JSON that is not strictly JSON."""

from __future__ import annotations

import json
from typing import Any, Final

from tests.data.reports.formats import Content, chrome, paddle_json
from tests.data.reports.training import Call, Event, Events, call, changed, is_kernel, span, spans, training

PYTHON, ASCEND, CANN, SUMS = 437675, 800, 43767502, 4376751100
HARDWARE: Final = {PYTHON: "Python", ASCEND: "Ascend Hardware", CANN: "CANN", SUMS: "Overlap Analysis"}


def named(names: dict[int, str], labels: dict[int, str] | None = None) -> Events:
    """Return the metadata events that name processes, and label them."""
    facts = [("process_name", pid, {"name": name}) for pid, name in names.items()]
    facts += [("process_labels", pid, {"labels": text}) for pid, text in (labels or {}).items()]
    return [{"name": name, "ph": "M", "pid": pid, "tid": 0, "args": args} for name, pid, args in facts]


def ascend_step(number: int, at: float, tasks: list[tuple[str, float, float, int]]) -> Events:
    """Return a step of 1,000 µs as torch_npu exports it. ``tasks`` have name, offset from the step's start, duration
    and stream. Each task has an operator, an entry of the task queue, a call of CANN, and two flows. The vendor adds
    the sums Computing and Free as rows of a process."""
    events = [span("cpu_op", f"ProfilerStep#{number}", at, 1000.0, PYTHON, PYTHON)]
    busy = at
    for index, (name, begin, us, stream) in enumerate(tasks):
        start, flow, connection = at + begin - 40, f"{number}{index}", 100 * number + index
        events += [
            span("cpu_op", f"aten::{name.lower()}", start, 20.0, PYTHON, PYTHON, **{"Sequence number": index}),
            span("enqueue", "Enqueue", start + 5, 5.0, PYTHON, PYTHON, correlation_id=connection),
            span("dequeue", f"Dequeue@aclnn{name}", start + 12, 10.0, PYTHON, PYTHON + 1, correlation_id=connection),
            span(None, f"AscendCL@aclnn{name}", start + 14, 6.0, CANN, PYTHON + 1,
                 level="acl", connection_id=connection),
            span(None, name, at + begin, us, ASCEND, stream,
                 **{"Stream Id": stream, "Task Type": "AI_CORE", "connection_id": connection}),
        ]  # fmt: skip
        for cat, source, thread in (("HostToDevice", CANN, PYTHON + 1), ("async_npu", PYTHON, PYTHON)):
            at_host = start + (15 if source == CANN else 2)
            begins = {"ph": "s", "cat": cat, "name": cat, "id": flow, "pid": source, "tid": thread, "ts": at_host}
            ends = {"ph": "f", "bp": "e", "pid": ASCEND, "tid": stream, "ts": at + begin}
            events += [begins, begins | ends]
        if begin + at > busy:
            events.append(span(None, "Free", busy, at + begin - busy, SUMS, 2))
        events.append(span(None, "Computing", at + begin, us, SUMS, 0))
        busy = max(busy, at + begin + us)
    return events


def with_text_times(events: Events) -> Events:
    """Return the events with starts as texts, as torch_npu writes them."""
    return [event | {"ts": f"{event['ts']:.3f}"} if "ts" in event else event for event in events]


ONE_STREAM: Final = [("MatMul", 100.0, 200.0, 3), ("Add", 400.0, 50.0, 3), ("Relu", 600.0, 30.5, 3)]
TWO_STREAMS: Final = [("MatMul", 100.0, 300.0, 3), ("Cast", 250.0, 300.0, 5), ("hcom_allReduce_", 700.0, 100.0, 5)]
NPU: Final = {ASCEND: "NPU 0"}
START_2024_US: Final = 1_704_161_511_000_000.0


def ascend(tasks: list[tuple[str, float, float, int]], steps: tuple[int, ...] = (7, 8)) -> Events:
    """Return a training on Ascend with the same tasks in each step."""
    return [
        event for index, number in enumerate(steps)
        for event in ascend_step(number, START_2024_US + 1000 * index, tasks)
    ]  # fmt: skip


def out_of_tree(backend: str) -> Events:
    """Return a training on a back end that is not part of torch: its name is in the categories."""
    category = {"kernel": f"{backend}_kernel", "cuda_runtime": f"{backend}_runtime"}
    return [event | {"cat": category.get(event["cat"], event["cat"])} for event in training((2, 3))]


BACKWARD: Final = "autograd::engine::evaluate_function: "


def iteration() -> list[Call]:
    """Return the 44 operators of ``torch.mm(ones, weight).relu().sum().backward()``, in a range ``mystep``."""
    conj, strided = [call("aten::resolve_conj") for _ in range(3)], call("aten::as_strided")
    fill, empty = call("aten::fill_"), call("aten::empty")
    turned = call("aten::t", call("aten::transpose", strided))
    nodes = [
        call(f"{BACKWARD}SumBackward0", call("SumBackward0", call("aten::expand", strided))),
        call(f"{BACKWARD}ReluBackward0", call("ReluBackward0", call("aten::threshold_backward"))),
        call(f"{BACKWARD}MmBackward0", call("MmBackward0", turned, call("aten::mm", *conj[:2]), turned,
                                            call("aten::mm", *conj[:2]))),
        call(f"{BACKWARD}torch::autograd::AccumulateGrad", call(
            "torch::autograd::AccumulateGrad", call("aten::add_"), call("aten::detach", call("detach")))),
    ]  # fmt: skip
    return [
        call("mystep", call("aten::ones", empty, fill), call("aten::matmul", call("aten::mm", *conj)),
             call("aten::relu", call("aten::clamp_min")), call("aten::sum", strided, fill),
             call("aten::ones_like", call("aten::empty_like", call("aten::empty_strided")), fill), *nodes)
    ]  # fmt: skip


def event_list(events: Events, **places: Any) -> Events:
    """Return events as ``EventList.export_chrome_trace`` writes them: an array without categories and numbers of
    processes."""
    places = {"tid": 1, "pid": "CPU functions"} | places
    return [{"name": e["name"], "ph": "X", "ts": e["ts"], "dur": e["dur"], **places, "args": {}} for e in events]


def legacy_autograd() -> Events:
    """Return a recording of ``torch.autograd.profiler.profile(use_cuda=True)`` of torch 1.4 to 1.7: the operators, and
    the kernels below the process "CUDA functions", linked by flows."""
    events: Events = []
    for index, (name, us) in enumerate([("mm", 150.0), ("add", 200.0), ("mm", 150.0), ("add", 200.0)]):
        at = 100.0 + 400 * index
        host = {"tid": 0, "pid": "CPU functions", "args": {}}
        device: Event = {"tid": 0, "pid": "CUDA functions", "args": {}}
        link = {"name": name, "id": index, "cat": "cpu_to_cuda"}
        events += [
            {"name": name, "ph": "X", "ts": at, "dur": 100.0, **host}, {**link, "ph": "s", "ts": at, **host},
            {**link, "ph": "f", "ts": at + 60, **device}, {"name": name, "ph": "X", "ts": at + 60, "dur": us, **device},
        ]  # fmt: skip
    return events


def memcpy(value: str = "N/A", bandwidth: str = "memory bandwidth (GB/s)") -> str:
    """Return the JSON of a copy with an unquoted word as a value, as Kineto wrote it for copies without a time."""
    return (
        ' {"ph":"X","cat":"Memcpy","name":"Memcpy DtoH (Device -> Pageable)","pid":0,"tid":"stream 7","ts":1105,'
        '"dur":2,"args":{"device":0,"context":1,"stream":7,"correlation":901,"external id":4,"bytes":400,'
        f'"{bandwidth}":{value}}}}},'
    )


def unquoted(first: str, content: dict[str, Any] | None = None, **replaced: str) -> bytes:
    """Return a trace whose first event is the JSON ``first``. ``replaced`` are texts and their successors."""
    text = json.dumps(content or chrome(training()), indent=1)
    text = text.replace('"traceEvents": [', f'"traceEvents": [\n{first}', 1)
    for old, new in replaced.items():
        assert f'"{old}"' in text
        text = text.replace(f'"{old}"', new)
    return text.encode()


def paddle_unquoted(word: str) -> bytes:
    """Return a trace of Paddle whose kernels have an unquoted word as their occupancy, the last value of an object."""
    content = paddle_json(training())
    for event in content["traceEvents"]:
        if event["cat"] == "Kernel":
            event["args"] |= {"warps per SM": "WORD", "theoretical achieved occupancy %": "WORD"}
    return json.dumps(content, indent=1).replace('"WORD"', word).encode()


def nested_words() -> bytes:
    """Return a trace with unquoted words in lists, in objects, and as the last value of an event's arguments."""
    words = "[N/A, 1, undefined]", '{"a": -nan, "b": [None, -inf]}', "True", "infinity"
    events = changed(training(), is_kernel)
    for event in events:
        if is_kernel(event):
            event["args"] |= {"x": "WORD 0", "y": "WORD 1", "z": "WORD 2", "occupancy": "WORD 3"}
    text = json.dumps(chrome(events))
    for number, word in enumerate(words):
        text = text.replace(f'"WORD {number}"', word)
    return text.encode()


BOM: Final = b"\xef\xbb\xbf"
THREE: Final = (2, 3, 4)
TEXT: Final = json.dumps(chrome(training(THREE)), indent=1)

FILES: Final[dict[str, Content]] = {
    "r01_ascend_one_stream.json": lambda: [*named(HARDWARE), *with_text_times(ascend(ONE_STREAM))],
    "r01_ascend_two_streams.json.gz": lambda: {"traceEvents": [*named(HARDWARE, NPU), *ascend(TWO_STREAMS, (3, 4, 5))]},
    "npu_kernels.json": lambda: chrome(out_of_tree("npu"), deviceProperties=[]),
    "other_backend.json": lambda: chrome(out_of_tree("sdaa"), deviceProperties=[]),
    "no_header.json": lambda: {"traceEvents": training()},
    "list_of_events.json": lambda: training(),
    "r03_events_export.json": lambda: event_list(spans(iteration() * 3, 279.637)),
    "r03_remote_thread.json": lambda: event_list(spans(iteration() * 2), tid=" node_id:0, thread_id:1 "),
    "r03_legacy_autograd.json": lambda: legacy_autograd(),
    "r05b_na.json": lambda: unquoted(memcpy()),
    "r05b_nan.json": lambda: unquoted(memcpy("NaN")),
    "r05b_infinity.json": lambda: unquoted(memcpy("-Infinity")),
    "r05b_inf.json": lambda: unquoted(memcpy("-inf")),
    "r05b_none.json": lambda: unquoted(memcpy("None")),
    "r05b_undefined.json.gz": lambda: unquoted(memcpy("undefined")),
    "r05b_nested.json": nested_words,
    "r05b_msvc.json": lambda: unquoted(memcpy("-nan(ind)")),
    "r05b_paddle.json": lambda: paddle_unquoted("N/A"),
    "r05b_paddle_nan.json": lambda: paddle_unquoted("-nan"),
    "r61_bom.json": lambda: BOM + TEXT.encode(),
    "r61_list.json": lambda: BOM + json.dumps(training(THREE)).encode(),
    "r61_compressed.json.gz": lambda: BOM + TEXT.encode(),
    "r61_paddle.json": lambda: BOM + json.dumps(paddle_json(training(THREE))).encode(),
    "r61_utf16.json": lambda: TEXT.encode("utf-16"),
}
