"""The conversation in docs/agents-example.md: the official client gets these answers from a real process, and the
numbers are those of independent sources."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("mcp", reason="the client of the official SDK is an extra")
pytest.importorskip("duckdb", reason="one question needs SQL, which is an extra")

from tests.support.mcp_client import results
from tests.support.paths import DATA, ROOT

pytestmark = pytest.mark.slow


def module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec
    assert spec.loader
    made = sys.modules[name] = importlib.util.module_from_spec(spec)  # data classes look up their module
    spec.loader.exec_module(made)
    return made


conversation = module("conversation")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return module("blocks").prepare(tmp_path_factory.mktemp("docs"))


@pytest.fixture(scope="module")
def answers(folder: Path) -> list[dict[str, Any]]:
    calls = [(question.tool, question.arguments) for question in conversation.QUESTIONS]
    return results(calls, folder)[1]


@pytest.fixture(scope="module")
def documents(answers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [answer["structuredContent"] for answer in answers]


def test_the_page_shows_what_the_client_gets(answers: list[dict[str, Any]]) -> None:
    left = iter(answers)
    page = conversation.page(lambda tool, arguments: next(left))
    assert (ROOT / "docs" / "agents-example.md").read_text(encoding="utf-8") == page, "run: python docs/generate.py"


# The answers from the recorded files, without perfkit's readers and views.


def events(recording: str) -> Mapping[str, np.ndarray]:
    """Return columns of a stored run, read by pyarrow."""
    table = pq.read_table(DATA / "examples" / f"{recording}.perfkit.parquet")
    texts = {name: np.array(table[name].cast("string").to_pylist()) for name in ("name", "kind")}
    numbers = {name: table[name].to_numpy() for name in ("start_ns", "dur_ns")}
    return texts | numbers


def trace_file() -> list[dict[str, Any]]:
    content = gzip.decompress((DATA / "torch-mlp.json.gz").read_bytes())
    return json.loads(content, parse_float=Decimal)["traceEvents"]


def host_ns(keep: Callable[[str], bool]) -> dict[str, tuple[int, int]]:
    """Return calls and total ns of each operator of the trace file. Durations are µs with three decimals. The time of
    an operator inside another one of the same name counts once."""
    found: dict[str, tuple[int, int]] = {}
    end: dict[tuple[str, int], Decimal] = {}
    for event in sorted((e for e in trace_file() if e.get("cat") == "cpu_op"), key=lambda e: (e["ts"], -e["dur"])):
        name, key = event["name"], (event["name"], event["tid"])
        if keep(name):
            calls, total = found.get(name, (0, 0))
            inside = event["ts"] < end.get(key, Decimal(-1))
            found[name] = calls + 1, total + (0 if inside else int(event["dur"] * 1000))
            end[key] = max(end.get(key, Decimal(-1)), event["ts"] + event["dur"])
    return found


def median_step_ns(recording: str) -> float:
    found = events(recording)
    return float(np.median(found["dur_ns"][found["kind"] == "step"]))


def test_answer_1_lists_the_runs(documents: list[dict[str, Any]]) -> None:
    runs = {run["path"]: run for run in documents[0]["views"]["runs"]}
    for path, recording in (("old/torch", "torch-transformer-plain"), ("old/paddle", "paddle-transformer-plain")):
        found = events(recording)
        assert runs[path]["steps"] == int((found["kind"] == "step").sum())
        assert runs[path]["median_step_ns"] == round(median_step_ns(recording))


def test_answer_2_has_the_recorded_wait_for_input(documents: list[dict[str, Any]]) -> None:
    found = events("torch-mlp-loader")
    waited = found["dur_ns"][found["kind"] == "dataloader"].sum()
    rows = {row["category"]: row for row in documents[1]["views"]["partition"]}
    assert rows["input_wait"]["total_ns"] == waited
    assert sum(row["total_ns"] for row in rows.values()) == found["dur_ns"][found["kind"] == "step"].sum()
    assert documents[1]["columns"]["partition"]["total_ns"]["unit"] == "ns"


def test_answer_3_has_the_largest_operators_of_the_file(documents: list[dict[str, Any]]) -> None:
    expected = sorted(host_ns(lambda name: True).items(), key=lambda item: -item[1][1])[:3]
    rows = documents[2]["views"]["operators"]
    assert [(row["name"], (row["calls"], row["total_cpu_ns"])) for row in rows] == expected


def test_answer_4_does_not_call_unrecorded_kernels_zero(documents: list[dict[str, Any]]) -> None:
    assert not [event for event in trace_file() if event.get("cat") == "kernel"]
    assert documents[3]["views"]["kernels"] == []
    (unknown,) = documents[3]["cannot_tell"]
    assert unknown["why"] == "no kernels on a device were recorded"


def test_answer_5_says_that_layers_are_unknown(documents: list[dict[str, Any]]) -> None:
    assert not [event for event in trace_file() if event.get("cat") == "python_function"]
    assert "annotate(model)" in documents[4]["cannot_tell"][0]["why"]


def test_answer_6_the_prediction_holds_for_the_recorded_pair(documents: list[dict[str, Any]]) -> None:
    """runs/workers is the same training with loader workers: its real step time is at most the predicted one."""
    (advice,) = documents[5]["advice"]
    assert advice["rule"] == "loader-workers"
    recorded = median_step_ns("torch-mlp-loader")
    assert abs(advice["prediction"]["base_ns"] / recorded - 1) < 0.01  # less the work of the profiler
    assert median_step_ns("torch-mlp-base") < advice["prediction"]["p90_ns"]
    assert "num_workers=2" in advice["remedy"]["code"]


def test_answer_7_has_the_recorded_evidence(documents: list[dict[str, Any]]) -> None:
    found, evidence = events("torch-mlp-loader"), documents[6]["evidence"]
    loads = found["dur_ns"][found["kind"] == "dataloader"]
    assert evidence["loader_ns"] == int(np.median(loads))
    assert evidence["step_ns"] == int(median_step_ns("torch-mlp-loader"))
    assert evidence["loader_ratio"] == pytest.approx(np.median(loads) / median_step_ns("torch-mlp-loader"))


def test_answer_8_predicts_a_step_without_loading(documents: list[dict[str, Any]]) -> None:
    """The training waits for its loader in its own thread, so a step is shorter by what it waits."""
    found, prediction = events("torch-mlp-loader"), documents[7]["prediction"]
    assert prediction["saving_ns"] == pytest.approx(
        np.median(found["dur_ns"][found["kind"] == "dataloader"]), rel=0.005
    )
    assert documents[7]["changes"][0].startswith(f"{(found['kind'] == 'dataloader').sum()} × ")


def test_answer_9_compares_the_recorded_steps(documents: list[dict[str, Any]]) -> None:
    step_time = documents[8]["step_time"]
    base, other = median_step_ns("torch-mlp-base"), median_step_ns("torch-mlp-layer")
    assert (step_time["base"], step_time["other"]) == (int(base), int(other))
    assert other / base - 1 > 0.2
    assert documents[8]["gate"][0]["result"] == "within noise"  # one capture of each run


def test_answer_10_has_the_rows_of_the_query(documents: list[dict[str, Any]]) -> None:
    expected = host_ns(lambda name: name in ("aten::mm", "aten::addmm"))
    rows = documents[9]["views"]["result"]
    assert {row["name"]: (row["calls"], row["total_ns"]) for row in rows} == expected
    assert documents[9]["columns"]["result"]["total_ns"]["unit"] == "ns"
