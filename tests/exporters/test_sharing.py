"""Exported files contain only the metadata that perfkit uses, and scrubbed files no texts that identify anyone. All
numbers stay."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import perfkit
from perfkit_core.base.system.machine import host_digest, is_this_host
from perfkit_core.cli.main import main
from perfkit_core.exporters.export import export
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.readers.load import load
from perfkit_core.trace.model.meta import Finding, TraceMeta
from perfkit_core.trace.model.sharing import file_name, shareable, shareable_finding
from perfkit_core.trace.model.trace import Trace
from tests.support.paths import DATA

HOST, USER, TOKEN = "aurora-gpu17", "mallory", "hf_" + "Q7x" * 10
PACKAGES = "/opt/venv/lib/python3.11/"
MODULE = "site-packages/torch/nn/modules/module.py(1510): _call_impl"
HEADER = {
    "host_name": f"{HOST}.corp.example", "username": USER, "tw_job": "secret-project-x",
    "env": {"WANDB_API_KEY": TOKEN}, "command": f"python train.py --token={TOKEN}", "batch_size": "64",
    "cuda_driver_version": 12040,
    "host": {"cores": 8, "owner": USER, "instructions": ["amx_bf16"]}, "traceName": f"/home/{USER}/x.json",
}  # fmt: skip
"""The keys of a real job's header: of the scheduler, of the training, and of torch."""
EXPORTS = (".json", ".parquet", ".speedscope.json", ".folded", ".csv", ".pb.gz")
ROOT = f"/home/{USER}/secret project/model"


def written(folder: Path) -> Path:
    """Write a trace file as torch's handler for TensorBoard names it, with secrets in all its texts."""
    stack = f"{ROOT}/utils.py(7): helper;{ROOT}/other/utils.py(9): helper;{PACKAGES}{MODULE}"
    events: list[dict[str, Any]] = []
    for step in range(3):
        at = 1000 * step
        args = {
            "Input Dims": [[2, 2], []],
            "Input type": ["float", ""],
            "Concrete Inputs": ["", "0.5"],
            "Ev Idx": step,
            "Call stack": stack,
            "cmdline": f"python --password={TOKEN}",
            "env": {"A": USER},
            "pg": [f"on {HOST}"],
        }
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 900},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": at + 20, "dur": 500, "args": args},
            {"ph": "X", "cat": "user_annotation", "name": f"load token={TOKEN} on {HOST}", "ts": at + 600, "dur": 100},
            {"ph": "X", "cat": "user_annotation", "name": "num_tokens=128 token: 7", "ts": at + 710, "dur": 50},
            {"ph": "X", "cat": "python_function", "name": f"{ROOT}/utils.py(7): helper", "ts": at + 770, "dur": 60},
            {"ph": "X", "cat": "python_function", "name": f"{ROOT}/b/utils.py(7): helper", "ts": at + 840, "dur": 50},
        ]  # fmt: skip
    named = {"ph": "M", "name": "thread_name", "args": {"name": f"loader of {USER}"}}
    folder.mkdir(exist_ok=True)
    file = folder / f"{HOST}_4711.1790857026.pt.trace.json"
    events = [{"pid": 1, "tid": 1, **event} for event in (named, *events)]
    file.write_text(json.dumps({"schemaVersion": 1, **HEADER, "traceEvents": events}), encoding="utf-8")
    return file


def content(file: Path) -> str:
    """Return all texts of a file: as it is, unpacked, and the footer and all columns of a Parquet file."""
    if file.name.endswith("parquet"):
        return str(pq.read_metadata(file).metadata) + json.dumps(pq.read_table(file).to_pydict())
    data = file.read_bytes()
    return (gzip.decompress(data) if file.suffix == ".gz" else data).decode("utf-8", "replace")


OF_HEADER = (HOST, "corp.example", "secret-project-x", "WANDB_API_KEY")


@pytest.mark.parametrize(("suffix", "stream"), [*((suffix, ()) for suffix in EXPORTS), (".parquet", ("--stream",))])
def test_an_export_lacks_the_header_unless_it_is_kept(suffix: str, stream: tuple[str, ...], tmp_path: Path) -> None:
    source = tmp_path / "in"
    file = written(source)
    texts = file.read_text(encoding="utf-8").replace(f" on {HOST}", "").replace(f"on {HOST}", "")
    file.write_text(texts, encoding="utf-8")  # what is in names and arguments is exported
    shared, kept = tmp_path / f"shared{suffix}", tmp_path / f"kept{suffix}"
    assert main(["export", str(file), "-o", str(shared), *stream]) == 0
    assert main(["export", str(file), "-o", str(kept), "--keep-host", *stream]) == 0
    assert [text for text in (*OF_HEADER, str(source)) if text in content(shared)] == []
    if suffix in (".json", ".parquet"):
        assert [text for text in OF_HEADER if text not in content(kept)] == []
        again, before = load(shared), load(file)
        assert len(again) == len(before)
        extra = {"batch_size": "64", "cuda_driver_version": 12040, "host": {"cores": 8, "instructions": ["amx_bf16"]}}
        assert again.meta.extra == extra
        assert load(kept).meta.extra == before.meta.extra


@pytest.mark.parametrize("arguments", [
    ("report", "-o", "{out}.html"), ("summary", "-o", "{out}.json"), ("advise", "-o", "{out}.md"),
])  # fmt: skip
def test_a_report_lacks_the_header(arguments: tuple[str, ...], tmp_path: Path) -> None:
    file = written(tmp_path / "in").rename(tmp_path / "trace.json")
    out = [argument.format(out=tmp_path / "made") for argument in arguments]
    assert main([out[0], str(file), *out[1:]]) == 0
    text = Path(out[-1]).read_text(encoding="utf-8")
    assert [text for secret in ("corp.example", "secret-project-x", "WANDB_API_KEY") if secret in text] == []


def test_a_key_is_kept_only_with_a_value_of_its_kind() -> None:
    extra = {
        "batch_size": "hunter2",
        "cores": [TOKEN],
        "host": "node17",
        "default_dtype": USER.upper(),
        "x_version": TOKEN,
        "modules": [{"secret": TOKEN}],
        "num_tokens": 12,
        "default_dtype2": "float32",
        "nsys": {"version": "2026.2.1.210"},
    }
    kept = shareable(TraceMeta(source="", format="", extra=extra, hostname=HOST)).extra
    assert kept == {"num_tokens": 12, "nsys": {"version": "2026.2.1.210"}}


@pytest.mark.parametrize("keys", [["cores", "threads"], ["threads", "cores"]])
def test_kept_keys_stay_in_the_order_of_the_recording(keys: list[str]) -> None:
    """Otherwise, two exports of a recording would differ."""
    extra = {"host": dict.fromkeys(keys, 2)}
    assert list(shareable(TraceMeta(source="", format="", extra=extra)).extra["host"]) == keys


def test_a_digest_stands_for_the_host() -> None:
    import socket

    meta = shareable(TraceMeta(source="", format="", hostname=socket.gethostname()))
    assert is_this_host(meta.hostname)
    assert shareable(meta).hostname == meta.hostname == host_digest()
    assert not is_this_host(shareable(TraceMeta(source="", format="", hostname="another")).hostname)
    assert not is_this_host(None)


@pytest.mark.parametrize(("source", "name"), [
    (f"/a/{HOST}_12.17.pt.trace.json.gz", "host_12.17.pt.trace.json.gz"),
    (f"/a/host_{HOST}pid_12_time_2026.paddle_trace.json", "hostpid_12_time_2026.paddle_trace.json"),
    ("C:\\runs\\base_line.json", "base_line.json"), ("s3://bucket/runs/a/", "a"),
])  # fmt: skip
def test_names_of_profilers_lose_the_host(source: str, name: str) -> None:
    assert file_name(source) == name


@pytest.mark.parametrize(("text", "shown"), [
    ("/home/mallory/runs/a.json: cannot be read", "a.json: cannot be read"), ("2/3 of µs/step", "2/3 of µs/step"),
    ("s3://bucket/runs/a is broken", "a is broken"), ("C:\\Users\\m\\x.json and ~/b/c", "x.json and c"),
    ("aten::mm(a/b)", "aten::mm(a/b)"),
])  # fmt: skip
def test_findings_name_no_folders(text: str, shown: str) -> None:
    assert shareable_finding(Finding("x", text)).message == shown


def numbers(trace: Trace, view: str) -> Any:
    """Return the numbers of a view's table, or the reason why it has none."""
    try:
        table = perfkit.summarize(trace, view=view)
    except perfkit.PerfkitError as error:
        return type(error)
    columns = [name for name in table.columns if pd.api.types.is_numeric_dtype(table[name])]
    return list(table.columns), sorted(map(repr, table[columns].itertuples(index=False, name=None)))


def test_a_scrubbed_trace_names_nobody_and_keeps_all_numbers(tmp_path: Path) -> None:
    file = written(tmp_path / "in")
    out = tmp_path / "out.perfkit.parquet"
    assert main(["scrub", str(file), "-o", str(out), "--paths", "--remove", "secret project"]) == 0
    secrets = (HOST, USER, TOKEN, "secret", "corp", "4711.", str(tmp_path), host_digest(HOST), "cmdline")
    assert [secret for secret in secrets if secret in content(out)] == []
    before, after = load(file), load(out)
    for view in get_plugins().views():
        assert numbers(before, view) == numbers(after, view), view
    names = set(after.codes("name").values)
    assert {"aten::mm", "num_tokens=128 token: 7", "load token=removed on host"} <= names
    assert {"utils.py(7): helper", "utils-2.py(7): helper"} <= names
    (stack,) = after.codes("stack").values
    assert stack.endswith(f";{MODULE}")
    args = json.loads(after.events["args"].drop_null()[0].as_py())
    assert args == {"Concrete Inputs": ["", "0.5"], "Ev Idx": 0, "env": {}, "pg": [""]}
    assert list(after.meta.thread_names.values()) == ["loader of user"]


REAL = (
    "torch/h100-vit.json.gz",
    "paddle/cpu-3.3.1/mlp_medium_mem/cycle0.pb.gz",
)


@pytest.mark.parametrize("file", REAL)
def test_all_views_of_a_scrubbed_recording_show_the_same_numbers(file: str, traces: Path) -> None:
    before = load(traces / file)
    after = perfkit.scrub(before, paths=True)
    assert {view for view in get_plugins().views() if numbers(before, view) != numbers(after, view)} == set()


def test_a_run_folder_is_scrubbed_to_a_run_folder(tmp_path: Path) -> None:
    assert main(["scrub", str(DATA / "torch-mlp.json.gz"), "-o", str(tmp_path / "out")]) == 0
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["scrubbed.perfkit.parquet"]
    again = load(tmp_path / "out")
    assert len(again) == len(load(DATA / "torch-mlp.json.gz"))
    assert "host_name" not in again.meta.extra


@pytest.mark.parametrize(("name", "shown"), [
    ("postgres://bob:pw@db/x", "postgres://removed@db/x"), ("password: abc.def", "password: removed"),
    ('"api_key": "abc"', '"api_key": "removed"'), ("token_embedding: Embedding", "token_embedding: Embedding"),
    ("model.token:Linear", "model.token:Linear"), ("AKIA" + "A1" * 8, "removed"), ("tokens=128", "tokens=128"),
    ("Authorization: Bearer abc", "Authorization: Bearer removed"), ("a<1, b/2>(int)", "a<1, b/2>(int)"),
])  # fmt: skip
def test_only_secrets_are_removed_from_names(name: str, shown: str) -> None:
    trace = load(DATA / "torch-mlp.json.gz")
    names = trace.codes("name")
    values = [name, *names.values[1:]]
    changed = pa.DictionaryArray.from_arrays(pa.array(names.codes, pa.int32()), pa.array(values, pa.string()))
    assert perfkit.scrub(trace.with_columns(name=changed), paths=True).codes("name").values[0] == shown


def test_an_exported_trace_is_exported_again_unchanged(tmp_path: Path) -> None:
    export(load(written(tmp_path / "in")), tmp_path / "a.json")
    export(load(tmp_path / "a.json"), tmp_path / "b.json")
    one, other = (load(tmp_path / f"{name}.json").meta for name in "ab")
    assert msgspec.structs.replace(one, source="") == msgspec.structs.replace(other, source="")
