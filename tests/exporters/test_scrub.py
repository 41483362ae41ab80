"""No text of a source survives ``perfkit scrub``: a secret is planted into each text, and all outputs are searched."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import perfkit
from perfkit_core.readers.load import load
from perfkit_core.trace.model import account, architecture, compiled_graph, frame_samples, timed_steps
from perfkit_core.trace.model.account import ReadEvents
from perfkit_core.trace.model.compiled_graph import CompiledGraph, KernelCall
from perfkit_core.trace.model.frame_samples import FrameSamples
from perfkit_core.trace.model.meta import Device, StoredFinding, TraceMeta
from perfkit_core.trace.model.timed_steps import TimedStep, TimedSteps
from perfkit_core.trace.model.trace import Trace
from perfkit_core.trace.storage.store import write_trace
from tests.exporters.test_sharing import EXPORTS, numbers
from tests.support.allocator import Allocator, stack, written
from tests.support.events import device, host, trace
from tests.support.nsys import Export
from tests.support.paths import DATA

SECRET = "Zq7Secret"
STRUCTURE = frozenset({"ph", "cat", "clock", "format", "framework", "kind", "phase", "action", "state"})
"""Keys whose values a reader needs as they are."""


def planted(value: Any) -> Any:
    """Return JSON with the secret in all texts, and in a new key of each object."""
    if isinstance(value, str):
        return value + SECRET
    if isinstance(value, list):
        return list(map(planted, value))
    if not isinstance(value, dict) or not value:
        return value
    kept = STRUCTURE | ({"name"} if value.get("ph") == "M" else set())
    items = {key: item if key in kept else planted(item) for key, item in value.items()}
    return items | {f"{key}{SECRET}": item for key, item in list(items.items())[:1]}


HEADER = {
    "deviceProperties": [{"id": 0, "name": "GPU", "uuid": "u", "totalGlobalMem": 1}], "record_shapes": 1,
    "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2, "pg_config": [{"pg_name": "p"}]},
    "PYTORCH_VERSION": "2", "host_name": "h", "cuda_runtime_version": 12040, "job": {"owner": "o", "tags": ["a", {}]},
}  # fmt: skip


def json_file(file: Path, folder: Path) -> Path:
    content = json.loads(gzip.decompress(file.read_bytes()))
    if "torch" in file.name:
        start = content["traceEvents"][-1]["ts"]
        kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": start, "dur": 1}
        content |= HEADER
        content["traceEvents"].append({**kernel, "args": {"device": 0, "stream": 7}})
    content = planted(content)
    path = folder / "source.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def pb_file(folder: Path) -> Path:
    """Overwrite the end of each long text, so that no length changes."""
    data = (DATA / "paddle-mlp.pb").read_bytes()
    path = folder / "source.pb"
    end = SECRET.encode()
    path.write_bytes(re.sub(rb"[ -~]{14,}", lambda match: match[0][: -len(end)] + end, data))
    return path


def snapshot(folder: Path) -> Path:
    allocator = Allocator()
    block = allocator.alloc(512, stack(("train.py", 3, "step")))
    allocator.free(block)
    return written(planted(allocator.snapshot()), folder / "source.pickle")


def nsys_file(folder: Path) -> Path:
    export = Export()
    export.call("cudaLaunchKernel_v7000", 10, 20, 1)
    export.kernel("void gemm<float>(int)", 30, 50, 1)
    export.range("training step", 0, 60)
    path = export.write(folder / "source.sqlite")
    with closing(sqlite3.connect(path)) as database, database:
        for (table,) in database.execute("select name from sqlite_master where type = 'table'").fetchall():
            for _, column, *_ in database.execute(f'pragma table_info("{table}")').fetchall():
                if column not in ("name", "label") or not table.startswith(("ENUM", "META")):
                    place = f'"{column}" = "{column}" || ? where typeof("{column}") = \'text\''
                    database.execute(f'update "{table}" set {place}', (SECRET,))
    return path


def full_trace() -> Trace:
    """Return a trace that uses all columns and fields that may hold texts."""
    texts: dict[str, Any] = {
        "shapes": "[[2, 2]]",
        "dtypes": '["float"]',
        "stack": "a.py(1): f;b.py(2): g",
        "module": "net.layer",
    }
    arguments = json.dumps({"Input type": ["float"], "kernel": "k", "own": {"a": ["b"]}, "number": 1})
    rows = [
        host("step 0", "step", 0, 100, step=0, category="user"),
        host("op", "operator", 10, 50, **texts, args=arguments),
        host("launch", "runtime", 20, 5, correlation=1),
        device("gemm", "kernel", 40, 20, correlation=1, args="no object"),
        device("copy", "memcpy", 70, 5, copy_kind="HtoD pinned"),
    ]
    found = trace(rows, names=lambda name: name)
    columns = {}
    for name in ("name", "category", "device", "copy_kind", "shapes", "dtypes", "stack", "module", "op_name"):
        column = found.column(name).combine_chunks()
        values = [text if text in (None, "cpu") else text + SECRET for text in column.cast(pa.string()).to_pylist()]
        columns[name] = pa.array(values, pa.string()).dictionary_encode()
    args = [text and (json.dumps(planted(json.loads(text))) if text[0] == "{" else text + SECRET)
            for text in found.column("args").to_pylist()]  # fmt: skip
    layer = architecture.Layer(path="net.layer", class_name="Linear", device="cuda:0")
    model = architecture.Architecture("net", "framework", (layer,))
    call = KernelCall(f"e{SECRET}", f"k{SECRET}", operators=("o",), modules=("m",), stacks=(f"a.py(1): f{SECRET}",))
    meta = TraceMeta(
        source="folder/file", format="stored", framework_version="2.0", hostname="machine", recording="id",
        devices=(Device("cuda:0", "GPU", 1, {"name": "GPU", "serial": "s", "numSms": 2}),),
        options={"with_stack": True, "o": "p"}, thread_names={"0:1:2": "main"}, cpu_utilisation={"process": 0.5},
        extra={"host": {"cores": 8, "owner": "o"}, "x_version": 2, "default_dtype": "float32", "own": "o",
               **architecture.to_extra([model])},
    )  # fmt: skip
    finding = StoredFinding("code", "3 rows", "{n} rows of {file}", {"n": 3, "file": "a"}, "{n} rows of {file}")
    meta = msgspec.convert(planted(msgspec.to_builtins(meta)), TraceMeta)
    stored = msgspec.convert(planted(msgspec.to_builtins(finding)), StoredFinding)
    events = found.with_columns(**columns, args=pa.array(args, pa.string())).events
    return Trace(events, meta, (stored.finding(),)).with_tables(
        frame_samples=frame_samples.to_table({"0": FrameSamples((f"a.py(1): f{SECRET}",), (0,), (0,), 0)}),
        step_clock=timed_steps.to_table({"0": TimedSteps((TimedStep(0, True, 100),))}),
        compiled_graphs=compiled_graph.to_table([CompiledGraph((call,), "e")]),
        account=account.to_table([ReadEvents("row", 1, "X", f"cpu{SECRET}", f"python{SECRET}")]),
    )


def stored_run(folder: Path) -> Path:
    return write_trace(full_trace(), folder / "source.perfkit.parquet")


def timeline(folder: Path) -> Path:
    perfkit.export(full_trace(), folder / "source.json", keep_host=True)
    return folder / "source.json"


def content(file: Path) -> str:
    """Return all texts of a file, unpacked. Of a Parquet file: the footer and the dictionaries of all columns."""
    data = file.read_bytes()
    if file.name.endswith("parquet"):
        table = pq.read_table(file, read_dictionary=[field.name for field in pq.read_schema(file)][-1:])
        texts = [chunk.dictionary.to_pylist() for column in table.columns for chunk in column.chunks
                 if pa.types.is_dictionary(chunk.type)]  # fmt: skip
        return data.decode("latin-1") + json.dumps(texts) + str(pq.read_metadata(file).metadata)
    return (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8", "replace")


SOURCES: dict[str, Callable[[Path], Path]] = {
    "torch": lambda folder: json_file(DATA / "torch-mlp.json.gz", folder),
    "paddle": lambda folder: json_file(DATA / "paddle-mlp.json.gz", folder),
    "pb": pb_file,
    "nsys": nsys_file,
    "snapshot": snapshot,
    "stored": stored_run,
    "timeline": timeline,
}


@pytest.mark.parametrize("source", SOURCES)
def test_no_text_survives(source: str, tmp_path: Path) -> None:
    before = load(SOURCES[source](tmp_path))
    unscrubbed = tmp_path / "unscrubbed.json"
    perfkit.export(before, unscrubbed, keep_host=True)
    assert content(unscrubbed).count(SECRET) >= 3
    after = perfkit.scrub(before, remove=[SECRET])
    assert numbers(before, "overview") == numbers(after, "overview")
    for suffix in EXPORTS:
        file = tmp_path / f"scrubbed{suffix}"
        perfkit.export(after, file, keep_host=True)
        assert SECRET not in content(file), suffix
        if suffix in (".json", ".parquet"):
            for other in EXPORTS:
                again = tmp_path / f"again{other}"
                perfkit.export(load(file), again, keep_host=True)
                assert SECRET not in content(again), (suffix, other)
