"""Both adapters and the example plugin pass the conformance suite. Objects that violate one of its rules fail."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from perfkit_core.errors import SourceError
from perfkit_core.plugins.contracts import Source, View
from perfkit_core.plugins.manager import EntryPoint, Plugins
from perfkit_core.plugins.manager import load as load_plugins
from perfkit_core.readers.load import load, load_one
from perfkit_core.testing.conformance import (
    check_operator_name,
    check_plugin,
    check_round_trip,
    check_source,
    check_view,
)
from perfkit_core.testing.traces import check_trace
from perfkit_core.trace.model import schema
from perfkit_core.trace.model.event_columns import TableColumns
from perfkit_core.trace.model.meta import Finding
from perfkit_core.trace.model.trace import Trace, concat_traces
from perfkit_core.trace.storage.bytestream import head
from tests.support.events import column, device, host, trace
from tests.support.paths import DATA, ROOT

pytestmark = pytest.mark.bare


EXAMPLE = ROOT / "tests" / "example_plugin"
ADAPTERS = ("perfkit_torch.plugin", "perfkit_paddle.plugin", "perfkit_mindspore.plugin")


@pytest.fixture(scope="module")
def plugins() -> Iterator[Plugins]:
    """Return the plugins of both adapters and of the example, whose folder is on the path as if it were installed."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        points = [EntryPoint(name.partition(".")[0].removeprefix("perfkit_"), name) for name in ADAPTERS]
        yield load_plugins(points)
    finally:
        sys.path.remove(str(EXAMPLE))


def source_named(plugins: Plugins, name: str) -> Source:
    return next(source for source in plugins.sources() if source.name == name)


@pytest.mark.parametrize("name", ADAPTERS)
def test_adapters_are_sound_plugins_that_import_no_framework(plugins: Plugins, name: str) -> None:
    check_plugin(importlib.import_module(name), frameworks=("torch", "paddle", "mindspore"))


def keeps_every_promise(found: Trace) -> None:
    """Paddle records parents, which need not enclose their children in time."""
    check_trace(found, own_tree=found.meta.framework == "paddle")


def test_every_recording_keeps_every_promise(plugins: Plugins, trace_file: Path) -> None:
    try:
        found = load(trace_file, plugins=plugins)
    except SourceError as error:
        pytest.skip(f"perfkit cannot read it: {error.message}")
    keeps_every_promise(found)


@pytest.mark.parametrize("name", ["torch/dlrm-8xv100", "torch/sampled-rank*"])
def test_joined_recordings_keep_every_promise(plugins: Plugins, traces: Path, name: str) -> None:
    """The files of a job, given in the opposite order."""
    files = sorted(traces.glob(name))
    keeps_every_promise(load(files[::-1] if len(files) > 1 else files[0], plugins=plugins))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["h100-bert-small.json.gz", "mi250-minitoy-train.json.gz", "mtia-inference.json.gz",
                                  "resnet-param.json.gz", "b200-eager-rank0of8.json.gz"])  # fmt: skip
def test_torch_reader_store_and_views(plugins: Plugins, traces: Path, tmp_path: Path, name: str) -> None:
    path = traces / "torch" / name
    found = load(path, plugins=plugins)
    check_source(source_named(plugins, "torch"), path)
    check_round_trip(found, tmp_path)
    for view in plugins.views().values():
        check_view(view, found)


@pytest.mark.parametrize("name", ["amp_custom/cycle0.pb", "mlp_medium/cycle0.pb.gz", "cnn_small/cycle0.json.gz"])
def test_paddle_reader_store_and_views(plugins: Plugins, traces: Path, tmp_path: Path, name: str) -> None:
    path = traces / "paddle" / "cpu-3.3.1" / name
    found = load(path, plugins=plugins)
    readers = [source for source in plugins.sources() if source.sniff(path, head(path))]
    assert len(readers) == 1
    check_source(readers[0], path)
    check_round_trip(found, tmp_path)
    for view in plugins.views().values():
        check_view(view, found)


@pytest.mark.parametrize("name", ["torch-mlp.json.gz", "paddle-mlp.pb", "paddle-mlp.json.gz"])
def test_our_own_recordings_survive_storing(plugins: Plugins, tmp_path: Path, name: str) -> None:
    check_round_trip(load(DATA / name, plugins=plugins), tmp_path)


OWN = [
    *(DATA / name for name in ("torch-mlp.json.gz", "paddle-mlp.pb", "paddle-mlp.json.gz")),
    *sorted({path.parent for path in DATA.rglob("*.perfkit.parquet") if path.parent.name != "examples"}),
    *sorted((DATA / "examples").glob("*.parquet")),
    DATA / "ranks",
]


@pytest.mark.parametrize("path", OWN, ids=lambda path: str(path.relative_to(DATA)))
def test_our_own_recordings_keep_every_promise(plugins: Plugins, path: Path) -> None:
    keeps_every_promise(load(path, plugins=plugins))


def test_the_example_plugin_passes(plugins: Plugins, traces: Path, tmp_path: Path) -> None:
    path = traces / "other" / "mindspore-timeline.json"
    found = load(path, plugins=plugins)
    check_trace(found)
    check_source(source_named(plugins, "mindspore"), path)
    check_round_trip(found, tmp_path)
    for view in plugins.views().values():
        check_view(view, found)
    check_operator_name(plugins, "mindspore", "MatMul", "matmul")
    check_operator_name(plugins, "mindspore", "ReluGrad", "relu_grad")
    check_operator_name(plugins, "mindspore", "Adam", "optimizer_update")


# -- the suite reports invalid objects ----------------------------------------------------------------------------


def sound() -> Trace:
    return trace(
        [
            host("step", "step", 0, 100, step=0, args='{"a":1}'),
            host("mm", "operator", 10, 50, shapes="[[1]]"),
            host("launch", "runtime", 20, 5, correlation=1),
            host("Backward", "backward", 70, 20, phase="backward"),
            device("k", "kernel", 200, 10, correlation=1),
            device("late", "memcpy", 300, 10, bytes=8),
        ],
        names={"mm": "matmul"}.get,
    )


def changed(column: str, row: int, value: Any) -> Callable[[], Trace]:
    """Return a function that makes the valid trace with one changed cell."""

    def make() -> Trace:
        good = sound()
        values = good.events[column].to_pylist()
        values[row] = value
        kind = good.events.schema.field(column)
        plain = pa.array(values, pa.string() if pa.types.is_dictionary(kind.type) else kind.type)
        cells = plain.dictionary_encode() if pa.types.is_dictionary(kind.type) else plain
        at = good.events.schema.get_field_index(column)
        events = good.events.set_column(at, kind, cells.cast(kind.type))
        return replace(good, events=TableColumns(events), _cache=None)  # past the gate

    return make


def with_meta(**meta: Any) -> Callable[[], Trace]:
    return lambda: replace(sound(), meta=msgspec.structs.replace(sound().meta, **meta), _cache=None)


STEP, MM, LAUNCH, BACKWARD, K, LATE = range(6)
BROKEN: dict[str, tuple[Callable[[], Trace], str]] = {
    "kind": (changed("kind", MM, "op"), "'op' is not a valid kind"),
    "phase": (changed("phase", MM, "warmup"), "not a valid phase"),
    "device": (changed("device", K, "GPU zero"), "not a valid device"),
    "order": (changed("start_ns", K, 0), "not sorted"),
    "duration": (changed("dur_ns", LATE, -1), "negative durations"),
    "parent later": (changed("parent", MM, BACKWARD), "not an earlier row"),
    "parent elsewhere": (changed("parent", BACKWARD, MM), "does not enclose"),
    "parent on a device": (changed("parent", LATE, K), "the parent is not a host event of the same thread"),
    "parent of another thread": (changed("tid", LAUNCH, 2), "the parent is not a host event of the same thread"),
    "self above duration": (changed("self_ns", MM, 51), "not between 0 and dur_ns"),
    "self not the rest": (changed("self_ns", MM, 44), "union of the children"),
    "self missing": (changed("self_ns", MM, None), "self_ns must be set for NESTED_KINDS"),
    "launched by a device": (changed("launched_by", LATE, K), "not a host event"),
    "host launched": (changed("launched_by", BACKWARD, LAUNCH), "the column launched_by must be null for host events"),
    "other correlation": (changed("launched_by", LATE, LAUNCH), "a different correlation"),
    "no such row": (changed("launched_by", K, 99), "not a row"),
    "step unknown": (changed("step", MM, 5), "was not recorded"),
    "step of the launch": (changed("step", K, None), "a different step than its launch"),
    "step in no step": (changed("step", LATE, 3), "was not recorded"),
    "phase of the span": (changed("phase", BACKWARD, "forward"), "not in the phase backward"),
    "phase of the launch": (changed("phase", K, "backward"), "a different phase than its launch"),
    "phase half known": (changed("phase", MM, None), "some events with self_ns have a phase"),
    "operator name": (changed("op_name", MM, "aten::mm"), "not a canonical operator name"),
    "name of no operator": (changed("op_name", BACKWARD, "matmul"), "no operator"),
    "args": (changed("args", MM, "{broken"), "not a JSON object"),
    "args list": (changed("args", MM, "[1]"), "not a JSON object"),
    "shapes": (changed("shapes", MM, "2x3"), "not a valid shapes"),
    "empty text": (changed("module", MM, ""), "instead of null"),
    "text for nothing": (changed("stack", MM, "None"), "instead of null"),
    "stream of the host": (changed("stream", MM, 0), "the column stream must be null for host events"),
    "thread of a kernel": (changed("tid", K, 1), "the column tid must be null for device work"),
    "framework": (with_meta(framework=None), "framework"),
    "clock": (with_meta(clock="utc"), "unknown clock"),
    "ranks": (changed("rank", MM, 3), "lacks some ranks"),
    "finding twice": (
        lambda: replace(sound(), quality=(Finding("a", "b"), Finding("a", "b"))),
        "a finding occurs twice",
    ),
    "finding code": (lambda: sound().with_findings(Finding("Not A Code", "b")), "not a valid code"),
    "finding empty": (lambda: sound().with_findings(Finding("code", " ")), "has no text"),
    "steps denied": (lambda: sound().with_findings(Finding("no-steps", "x")), "contradicts"),
    "device denied": (lambda: sound().with_findings(Finding("no-device-events", "x")), "contradicts"),
    "column": (
        lambda: replace(sound(), events=TableColumns(sound().events.drop_columns(["args"]))),
        "the columns differ",
    ),
}


def test_the_sound_trace_passes() -> None:
    check_trace(sound())


@pytest.mark.parametrize("what", BROKEN)
def test_an_invalid_trace_is_reported(what: str) -> None:
    make, message = BROKEN[what]
    with pytest.raises(AssertionError, match=message):
        check_trace(make())


def test_ranks_must_be_adjacent_and_sorted() -> None:
    first, second = (trace([host("a", "operator", at, 5), host("b", "operator", at + 9, 5)], rank=at) for at in (0, 1))
    check_trace(concat_traces([second, first]))
    for parts, message in (
        ([first, trace([host("c", "operator", -9, 5)], rank=0)], "not sorted"),
        ([first, second, trace([host("c", "operator", 50, 5)], rank=0)], "not adjacent"),
    ):
        with pytest.raises(AssertionError, match=message):
            check_trace(concat_traces(parts))


def test_only_a_closure_takes_an_optimizer_span_out_of_its_phase() -> None:
    span = host("Optimizer.step", "optimizer", 0, 100, phase="optimizer")
    good = trace([span, host("Backward", "backward", 10, 20, phase="backward"), host("adam", "operator", 50, 10)])
    assert column(good, "phase")["Optimizer.step"] == "other"
    check_trace(good)
    moved = pa.array([0, 200, 300], pa.int64())
    broken = good.with_columns(start_ns=moved, parent=pa.array([-1, -1, -1], pa.int64())).with_ints(
        self_ns=good.ints("dur_ns")
    )
    with pytest.raises(AssertionError, match="a optimizer span is not in the phase optimizer"):
        check_trace(broken)


def test_zeros_for_missing_numbers_are_found() -> None:
    good = sound()
    at = good.events.schema.get_field_index("flops")
    zeros = pa.array(np.zeros(len(good), np.int64))
    with pytest.raises(AssertionError, match="flops is 0 in all rows"):
        check_trace(replace(good, events=good.events.set_column(at, schema.SCHEMA.field("flops"), zeros), _cache=None))


def test_recorded_parents_need_not_enclose_in_time() -> None:
    other = changed("parent", BACKWARD, MM)()
    cells = other.events.schema.get_field_index("self_ns")
    own = pa.array([50, 45, 5, 20, None, None], pa.int64())
    events = other.events.set_column(cells, schema.SCHEMA.field("self_ns"), own)
    check_trace(replace(other, events=events, _cache=None), own_tree=True)


def test_a_reader_that_accepts_everything_or_hides_damage_fails(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text("[]", encoding="utf-8")
    good = load_one(DATA / "torch-mlp.json.gz")
    with pytest.raises(AssertionError, match="recognises a foreign file"):
        check_source(Source("greedy", "all", lambda path, head: 1, lambda path, partial: good), path)
    with pytest.raises(AssertionError, match="without an error"):
        check_source(Source("silent", "some", lambda path, head: int(head == b"[]"), lambda path, partial: good), path)
    with pytest.raises(AssertionError, match="does not recognise"):
        check_source(Source("blind", "none", lambda path, head: 0, lambda path, partial: good), path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "implements no hook"),
        ("@hookimpl\ndef perfkit_sources():\n    return [5]", "not a Source"),
        ("@hookimpl\ndef perfkit_sources():\n    raise ValueError('x')", "ValueError"),
        (
            "@hookimpl\ndef perfkit_frameworks():\n    return [Framework('wave', operator_names=lambda: str.lower)]",
            "unknown operator",
        ),
        ("import wave\n@hookimpl\ndef perfkit_frameworks():\n    return [Framework('wave')]", "imports wave"),
        (
            "@hookimpl\ndef perfkit_frameworks():\n    return [Framework('wave', range_names=lambda: str.lower)]",
            "unknown range",
        ),
        (
            "def part():\n    import wave\n@hookimpl\ndef perfkit_frameworks():\n"
            "    return [Framework('wave', checks=part)]",
            "imports wave",
        ),
        (
            "@hookimpl\ndef perfkit_frameworks():\n    return [Framework('wave', checks=lambda: 5)]",
            "not a FrameworkChecks",
        ),
        (
            "@hookimpl\ndef perfkit_frameworks():\n    return [Framework('wave', checks=lambda: 1 / 0)]",
            "ZeroDivisionError",
        ),
        ("@hookimpl\ndef perfkit_frameworks():\n    return [5]", "not a Framework"),
        ("@hookimpl\ndef perfkit_nothing():\n    return []", "does not load"),
    ],
)
def test_a_broken_plugin_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    """The module ``wave``, which nothing else imports, plays the role of a framework."""
    (tmp_path / "perfkit_broken.py").write_text(
        f"from perfkit_core.plugins import hookimpl\nfrom perfkit_core.plugins.frameworks import Framework\n{text}\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "perfkit_broken", raising=False)
    module: ModuleType = importlib.import_module("perfkit_broken")
    try:
        with pytest.raises(AssertionError, match=message):
            check_plugin(module)
    finally:
        del sys.modules["perfkit_broken"]


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"a_ns": [0.5]}), "not an integer"),
        (pd.DataFrame({"a_ratio": [1]}), "not a float"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns of the same name"),
        (pd.DataFrame({"b": [1]}), "no column size_bytes"),
    ],
)
def test_a_broken_view_is_found(frame: pd.DataFrame, message: str) -> None:
    order = "size_bytes" if "b" in frame else None
    view = View("v", "V", "a view", lambda trace, request: frame, order=order)
    with pytest.raises(AssertionError, match=message):
        check_view(view, sound())
