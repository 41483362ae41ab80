"""Small inputs that break an output or a tool: secrets, names for spreadsheets and SQL, labels, and very long names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from tests.data.reports.formats import Content, chrome, paddle_json, paddle_pb
from tests.data.reports.training import A100, Event, Events, kernel, span, training

REMOVED: Final = "Secret GPU"
TOKEN: Final = "SEKRET"
SCRIPT: Final = "</script><script>window.__pwned=1;</script>"
GRAMMAR: Final = frozenset(
    {"ph", "cat", "schemaVersion", "displayTimeUnit", "id", "s", "bp", "Input type", "start_time", "end_time"}
)
"""Keys of texts that a reader needs as they are."""


def planted(value: Any, key: str = "", kept: Collection[str] = GRAMMAR) -> Any:
    """Return JSON content with the secret in each text that is not grammar, and in each name of a further key."""
    if isinstance(value, dict):
        return {name: planted(item, name, kept) for name, item in value.items()}
    if isinstance(value, list):
        return [planted(item, key, kept) for item in value]
    if (
        isinstance(value, str)
        and key not in kept
        and not value.startswith(("ProfilerStep", "ProfileStep", "process_", "thread_"))
    ):
        name, bracket, duration = value.rpartition("[")
        return f"{name} {REMOVED}{bracket}{duration}" if bracket and duration.endswith("s]") else f"{value} {REMOVED}"
    return value


def everything() -> dict[str, Any]:
    """Return a recording of torch that has all kinds of texts: names, threads, labels, arguments, devices, header."""
    labels = [
        {"ph": "M", "name": f"{what}_name", "pid": 100, "tid": 100, "ts": 0, "args": {"name": what}}
        for what in ("process", "thread")
    ]
    frames = [span("python_function", "train.py(3): step", 1001, 980, **{"Python id": 1, "Python parent id": None})]
    modules = [
        span(
            "python_function",
            "nn.Module: Net_0",
            1002,
            900,
            **{"Python id": 2, "Python parent id": 1, "Python module id": 0},
        )
    ]
    shaped = span(
        "cpu_op", "aten::mul", 1850, 40, **{"Input Dims": [[4]], "Input type": ["float"], "Concrete Inputs": ["a text"]}
    )
    copied = span(
        "gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", 1860, 5, 0, 7, device=0, stream=7, bytes=64, note="text"
    )
    group = {"pg_name": "group", "pg_desc": "description", "backend_config": "cuda:nccl", "ranks": [0]}
    return chrome(
        [*labels, *training((2, 3)), *frames, *modules, shaped, copied],
        deviceProperties=[A100 | {"uuid": "GPU-0123", "maker": {"site": "a site"}}],
        host_name="host", traceName="trace.json",
        trace_id="0123", username="someone", more={"nested": ["text", {"deeper": "text"}]},
        distributedInfo={"backend": "nccl", "rank": 0, "world_size": 1, "pg_config": [group], "nccl_version": "2.21"},
    )  # fmt: skip


def labelled(
    labels: list[tuple[str, float, float]], operators: list[tuple[str, float, float]], process: int = 100
) -> Events:
    """Return labels around operators. Each has a name, a start and a duration."""
    events = [span("user_annotation", name, at, us, process, process) for name, at, us in labels]
    events += [span("cpu_op", name, at, us, process, process) for name, at, us in operators]
    return sorted(events, key=lambda event: event["ts"])


NAMES: Final = ("aten::relu", "aten::mm", "aten::relu", "aten::mm")
AT: Final = (1072.0, 1172.0, 1377.0, 1477.0)


def same_labels(levels: int = 1) -> Events:
    """Return four operators. Each lies in labels of its own name."""
    labels = [
        (name, at - level, 80.0 + 2 * level) for level in range(levels) for name, at in zip(NAMES, AT, strict=True)
    ]
    return labelled(labels, [(name, at + 3, 40.0) for name, at in zip(NAMES, AT, strict=True)])


def paddle_labels() -> bytes:
    """Return operators of Paddle in ranges of the user that have their names."""
    names = ("relu dygraph", "matmul dygraph", "relu dygraph", "matmul dygraph")
    events: Events = []
    for name, at in zip(names, AT, strict=True):
        events += [span("label", name, at, 80.0), span("cpu_op", name, at + 3, 40.0)]
    return paddle_pb(events)


FORMULA: Final = "x\r=cmd|'/c calc'!A1"
STARTS: Final = (
    "=1+1",
    "+1",
    "-1+1",
    "@SUM(1)",
    "\uff1d1+1",
    "\uff0b1",
    "\uff0d1",
    "\uff20SUM(1)",
    "\t=1",
    "\r=1",
    "\n=1",
)
"""Names that a spreadsheet would compute, also in full-width characters."""


def names(*values: str) -> Events:
    """Return one operator of 20 µs for each name."""
    return [span("cpu_op", value, 1000.0 + 50 * index, 20.0, 1, 1) for index, value in enumerate(values)]


def sql_content() -> dict[str, Any]:
    """Return a recording whose texts end a script, without any FLOPs."""
    work = [
        span("cpu_op", SCRIPT, 1075, 40.0),
        span("cuda_runtime", "cudaLaunchKernel", 1080, 5, correlation=1),
        kernel(SCRIPT, 1090, 30, 1),
    ]
    return chrome([*work, span("user_annotation", "ProfilerStep#0", 1000, 300.0)], host_name=SCRIPT, username=SCRIPT)


def long_name(length: int, letter: str = "A") -> Events:
    """Return a step with one very long name."""
    return [
        span("cpu_op", letter * length, 1000.0, 4.0, 1, 1), span("cpu_op", "aten::mm", 1005.0, 4.0, 1, 1),
        span("user_annotation", "ProfilerStep#1", 999.0, 11.0, 1, 1),
    ]  # fmt: skip


def many_names(count: int) -> Events:
    """Return a step with this number of names."""
    step: Event = span("user_annotation", "ProfilerStep#1", 999.0, count * 2 + 2.0, 1, 1)
    return [step, *(span("cpu_op", f"op{number}", 1000.0 + 2 * number, 1.0, 1, 1) for number in range(count))]


SECRET_GPU: Final = {"id": 0, "name": f"{REMOVED} token={TOKEN}"}
MINIMAL: Final = [
    span("cpu_op", "aten::mm", 1000, 40, 1, 1),
    span("kernel", "k", 1010, 40, 0, 7, device=0, stream=7),
]

FILES: Final[dict[str, Content]] = {
    "scrub_min.json": lambda: {"deviceProperties": [SECRET_GPU], "traceEvents": MINIMAL},
    "scrub_properties.json": lambda: chrome(
        MINIMAL, deviceProperties=[A100 | {"uuid": f"token={TOKEN}", "site": {"rack": [REMOVED]}}]
    ),
    "scrub_paddle.json": lambda: paddle_json(
        training(), deviceProperties=[SECRET_GPU], ExtraInfo={"note": f"token={TOKEN} {REMOVED}"}
    ),
    "scrub_everything.json": lambda: planted(everything()),
    "scrub_everything_paddle.json": lambda: planted(
        paddle_json(training(), deviceProperties=[A100], ExtraInfo={"1": "thread"})
    ),
    "csv_cr.json": lambda: {
        "traceEvents": [span("cpu_op", FORMULA, 1000, 40, 1, 1), span("cpu_op", "aten::mm", 1050, 20, 1, 1)]
    },
    "csv_starts.json": lambda: {"traceEvents": names(*STARTS, *(f"a{start}" for start in STARTS))},
    "csv_paddle.json": lambda: paddle_json(names(FORMULA, "\uff1d1+1", "matmul dygraph")),
    "op_in_label.json": lambda: {"traceEvents": labelled([("aten::mm", 1000, 80)], [("aten::mm", 1005, 40)], 1)},
    "operators_vanish.json": lambda: {"traceEvents": same_labels()},
    "op_in_two_labels.json": lambda: {"traceEvents": same_labels(levels=2)},
    "op_in_label_paddle.pb": paddle_labels,
    "sql_t.json": sql_content,
    "ub_long.json": lambda: {"traceEvents": long_name(20_000)},
    "ub_longer.json": lambda: {"traceEvents": long_name(2_000_000, "B")},
    "ub_many.json": lambda: {"traceEvents": many_names(100_000)},
    "ub_some.json": lambda: {"traceEvents": many_names(5_000)},
}
