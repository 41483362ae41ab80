"""Comparisons of public recordings say what their raw events say: the direction and size of the difference, its main
cause, and no false cause. The raw figures are read from the files without perfkit."""

from __future__ import annotations

import gzip
import json
import random
import sqlite3
import statistics
from collections import defaultdict
from functools import cache
from itertools import pairwise
from pathlib import Path

import pandas as pd
import pytest

from perfkit_core import load
from perfkit_core.base.language.messages import render
from perfkit_core.compare.report import comparison_report, first_look
from perfkit_core.trace.model.report_data import Report

DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
RUNTIME = ("cuda_runtime", "cuda_driver", "Runtime")
PAIRS = {
    "server": ("serving/b300-deepseek-decode.json.gz", "serving/mi300x-deepseek-decode.json.gz"),
    "list": ("torch-judged/resnet50-list-workers0.json.gz", "torch-judged/resnet50-list-workers4.json.gz"),
    "workers": ("torch/pairs/resnet50-workers0.json.gz", "torch/pairs/resnet50-workers4.json.gz"),
    "bert": ("torch/h100-bert-small.json.gz", "torch/mi300x-bert-small.json.gz"),
    "vit": ("torch/h100-vit.json.gz", "torch/mi300x-vit.json.gz"),
    "qwen": ("torch/h100-qwen05b.json.gz", "torch/mi300x-qwen05b.json.gz"),
}
Interval = tuple[float, float]


class Raw:
    """Host ranges of steps, and for each the device work that it launched, in µs, from the events of a Chrome trace."""

    def __init__(self, path: Path) -> None:
        events = json.loads(gzip.decompress(path.read_bytes()))
        events = events["traceEvents"] if isinstance(events, dict) else events
        spans = [event for event in events if event.get("ph") == "X" and "dur" in event]
        host = [event for event in spans if event.get("cat") not in (*DEVICE, "gpu_user_annotation")]
        ranges = [e for e in host if str(e["name"]).startswith("ProfilerStep#")]
        ranges = ranges or [max((e for e in host if e.get("cat") == "user_annotation"), key=lambda e: float(e["dur"]))]
        spans_us = sorted((float(e["ts"]), float(e["dur"])) for e in ranges)
        self.steps: list[Interval] = [(start, start + dur) for start, dur in spans_us]
        launch = {e["args"].get("correlation"): float(e["ts"]) for e in host if e.get("cat") in RUNTIME}
        self.work: dict[int, list[Interval]] = defaultdict(list)
        for event in spans:
            if event.get("cat") in DEVICE and (at := launch.get(event["args"].get("correlation"))) is not None:
                for number, (start, end) in enumerate(self.steps):
                    if start <= at < end:
                        self.work[number].append((float(event["ts"]), float(event["ts"]) + float(event["dur"])))

    def busy_ms(self, step: int) -> float:
        total, reach = 0.0, float("-inf")
        for start, end in sorted(self.work[step]):
            total += max(end - max(start, reach), 0)
            reach = max(reach, end)
        return total / 1000

    def window_ms(self, step: int) -> float:
        """From the first to the last work that the step launched."""
        return (max(end for _, end in self.work[step]) - min(start for start, _ in self.work[step])) / 1000

    def host_ms(self, step: int) -> float:
        return (self.steps[step][1] - self.steps[step][0]) / 1000

    def cadence_ms(self) -> list[float]:
        """From the end of the device work of each step to that of the next, without the first step."""
        ends = [max(end for _, end in [*self.work[step], self.steps[step]]) for step in range(len(self.steps))]
        return [(later - earlier) / 1000 for earlier, later in pairwise(ends)]


@cache
def report_of(folder: Path, name: str) -> Report:
    return comparison_report(*(load(folder / path) for path in PAIRS[name]))


@cache
def raw_of(folder: Path, name: str) -> tuple[Raw, Raw]:
    base, other = (Raw(folder / path) for path in PAIRS[name])
    return base, other


def table(report: Report, name: str) -> pd.DataFrame:
    (section,) = (section for section in report.sections if section.name == name)
    return section.table


def named(report: Report) -> dict[str, float]:
    """Return the rows of the waterfall, without the totals, in ms."""
    rows = table(report, "waterfall").iloc[1:-1]
    return dict(zip(rows["name"], rows["difference_ns"] / 1e6, strict=True))


def categories(report: Report) -> dict[str, float]:
    rows = table(report, "step_parts")
    return dict(zip(rows["category"], rows["difference_ns"] / 1e6, strict=True))


def steps_ms(report: Report) -> tuple[float, float]:
    return report.data["step_time"]["base"] / 1e6, report.data["step_time"]["other"] / 1e6


def said(report: Report) -> str:
    return " ".join(text if isinstance(text, str) else render(text) for text in report.headline)


def test_a_server_that_only_enqueues_is_compared_on_the_clock_of_the_device(traces: Path) -> None:
    """The host's part of a step is 57% shorter, but the device takes 120% longer."""
    report, raw = report_of(traces, "server"), raw_of(traces, "server")
    assert steps_ms(report) == pytest.approx([side.window_ms(0) for side in raw], rel=0.02)
    assert "longer" in said(report)
    assert "shorter" not in said(report)
    busy = raw[1].busy_ms(0) - raw[0].busy_ms(0)
    assert sum(categories(report)[name] for name in ("compute", "copy")) == pytest.approx(busy, rel=0.02)
    assert next(iter(named(report))) == "attention outside operators, on the device"


@pytest.mark.parametrize("name", ["list", "workers"])
def test_data_loading_is_one_cause_and_device_work_belongs_to_its_step(traces: Path, name: str) -> None:
    """Workers take data loading out of the steps, and the device works a little longer. In the first recorded step,
    the device finishes work of steps before."""
    report, raw = report_of(traces, name), raw_of(traces, name)
    assert steps_ms(report) == pytest.approx([statistics.median(side.cadence_ms()) for side in raw], rel=0.02)
    (first, difference), *rest = named(report).items()
    assert first == "waiting for data"
    assert difference < 10 * min(value for _, value in rest)
    busy = [statistics.mean(side.busy_ms(step) for step in range(1, 6)) for side in raw]
    parts = categories(report)
    assert parts["compute"] + parts["copy"] == pytest.approx(busy[1] - busy[0], abs=0.02 * busy[0])
    assert min(parts["compute"], parts["copy"]) > 0
    assert not any("batch_norm" in cause or "without a recorded launch" in cause for cause in named(report))


@pytest.mark.parametrize("name", ["bert", "vit"])
def test_steps_that_wait_for_the_host_are_compared_on_its_clock(traces: Path, name: str) -> None:
    report, raw = report_of(traces, name), raw_of(traces, name)
    assert steps_ms(report) == pytest.approx([side.host_ms(0) for side in raw], rel=0.02)
    parts = categories(report)
    assert min(parts, key=parts.__getitem__) == "host"
    busy = raw[1].busy_ms(0) - raw[0].busy_ms(0)
    assert parts["compute"] + parts["copy"] == pytest.approx(busy, rel=0.02)
    operators = table(first_look(report), "operators")
    assert {"base_cpu_ns", "other_cpu_ns"} <= set(operators)
    assert operators["difference_cpu_ns"].abs().is_monotonic_decreasing


def test_device_work_of_other_steps_is_no_cause(traces: Path) -> None:
    """A third of the device work within the range of the only step was launched before."""
    report, raw = report_of(traces, "qwen"), raw_of(traces, "qwen")
    assert steps_ms(report) == pytest.approx([side.window_ms(0) for side in raw], rel=0.02)
    busy = raw[1].busy_ms(0) - raw[0].busy_ms(0)
    assert sum(categories(report)[name] for name in ("compute", "copy")) == pytest.approx(busy, rel=0.02)
    assert not any("without a recorded launch" in cause for cause in named(report))
    operators = table(report, "operators").set_index("name")
    assert operators.loc["attention", ["base_calls", "other_calls"]].tolist() == [24, 24]


@pytest.mark.parametrize("name", PAIRS)
def test_tables_of_one_screen_agree(traces: Path, name: str) -> None:
    """The waterfall and the categories sum to the difference, and no operator differs in both directions."""
    report = report_of(traces, name)
    base, other = (report.data["step_time"][side] for side in ("base", "other"))
    bars = table(report, "waterfall")
    assert bars["difference_ns"].sum() == other - base
    assert bars["time_so_far_ns"].iloc[[0, -1]].tolist() == [base, other]
    assert table(report, "step_parts")["difference_ns"].sum() == other - base
    operators = table(report, "operators").set_index("name")
    for cause, difference in named(report).items():
        for place in ("device", "cpu"):
            operator = cause.split(",")[0]
            if operator in operators.index and ("device" in cause or "exposed" in cause) == (place == "device"):
                assert operators.loc[operator, f"difference_{place}_ns"] * difference >= 0, cause


def cut(source: Path, target: Path, first: float, last: float, dropped: str = "") -> Path:
    """Copy the part between two shares of the time of an export. Every tenth call of the kernel ``dropped`` is left
    out."""
    target.write_bytes(source.read_bytes())
    with sqlite3.connect(target) as file:
        begin, end = file.execute("select min(start), max(end) from CUPTI_ACTIVITY_KIND_KERNEL").fetchone()
        edges = begin + first * (end - begin), begin + last * (end - begin)
        for (table_name,) in file.execute("select name from sqlite_master where type = 'table'").fetchall():
            columns = {row[1] for row in file.execute(f"pragma table_info({table_name})")}
            if {"start", "end"} <= columns:
                file.execute(f"delete from {table_name} where start < ? or start > ?", edges)
        kernels = file.execute(
            "select correlationId, globalPid from CUPTI_ACTIVITY_KIND_KERNEL join StringIds on id = demangledName "
            "where value like ? order by start",
            (f"%{dropped}%",),
        ).fetchall()
        for correlation, process in kernels[::10] if dropped else ():
            key = correlation, process // 0x1000000
            where = "where correlationId = ? and {} / 0x1000000 = ?"
            file.execute(f"delete from CUPTI_ACTIVITY_KIND_RUNTIME {where.format('globalTid')}", key)
            file.execute(f"delete from CUPTI_ACTIVITY_KIND_KERNEL {where.format('globalPid')}", key)
    return target


def compared(*paths: Path) -> Report:
    base, other = map(load, paths)
    return comparison_report(base, other)


def cut_chrome(source: Path, target: Path, first: float, last: float, dropped: str = "") -> Path:
    """Do the same with a Chrome trace. The ends are those of its kernels, or of its operators without any."""
    trace = json.loads(gzip.decompress(source.read_bytes()))
    kernels = [event for event in trace["traceEvents"] if event.get("cat") in ("kernel", "Kernel")]
    timed = kernels or [event for event in trace["traceEvents"] if event.get("cat") == "Operator"]
    begin, end = min(float(e["ts"]) for e in timed), max(float(e["ts"]) + float(e["dur"]) for e in timed)
    edges = begin + first * (end - begin), begin + last * (end - begin)
    left_out = {id(event) for event in [e for e in kernels if dropped and dropped in e["name"]][::10]}
    trace["traceEvents"] = [
        event for event in trace["traceEvents"]
        if event.get("ph") == "M" or (edges[0] <= float(event.get("ts", 0)) <= edges[1] and id(event) not in left_out)
    ]  # fmt: skip
    target.write_bytes(gzip.compress(json.dumps(trace).encode(), 1))
    return target


RECORDINGS = {
    "nsys": ("nsys/mfu-2gpu-before.sqlite", cut),
    "nsys uneven": ("nsys/h100-2gpu-1s.sqlite", cut),
    "server": ("serving/vllm-decode-graph.json.gz", cut_chrome),
    "server prefill": ("serving/sglang-qwen3-8b-prefill-decode.json.gz", cut_chrome),
    "server graph": ("serving/b300-deepseek-decode.json.gz", cut_chrome),
    "training": ("torch/pairs/resnet50-workers0.json.gz", cut_chrome),
    "training, one step": ("torch/sampled-rank0.json.gz", cut_chrome),
    "inference": ("torch/h100-qwen05b.json.gz", cut_chrome),
    "paddle": ("paddle/cpu-3.3.1/cnn_small/cycle0.json.gz", cut_chrome),
}
SEEDS = [(name, seed) for name in RECORDINGS for seed in (range(4) if name in ("nsys", "server") else (1, 2))]
SEEDS += [("nsys uneven", 8), ("nsys uneven", 17), ("server prefill", 0), ("server graph", 4), ("inference", 6)]


@pytest.mark.parametrize(("name", "seed"), SEEDS)
def test_two_random_windows_of_one_recording_do_not_differ(traces: Path, tmp_path: Path, name: str, seed: int) -> None:
    """The windows have 30% to 70% of the recording, and may overlap. They cut steps, replays of graphs and requests."""
    draw = random.Random(seed)
    path, cut_of = RECORDINGS[name]
    suffix = "".join(Path(path).suffixes[-2:])
    windows = []
    for number in range(2):
        width = draw.uniform(0.3, 0.7)
        first = draw.uniform(0, 1 - width)
        windows.append(cut_of(traces / path, tmp_path / f"{number}{suffix}", first, first + width))
    report = compared(*windows)
    assert report.headline[0].template.startswith(("No difference", "Cannot tell")), said(report)
    assert "Calls for each call" not in said(report)
    assert all(section.table.empty for section in report.sections if section.name == "waterfall")


@pytest.mark.parametrize("middle", [0.5, 0.37])
def test_two_parts_of_one_recording_do_not_differ(traces: Path, tmp_path: Path, middle: float) -> None:
    source = traces / "nsys" / "mfu-2gpu-before.sqlite"
    parts = cut(source, tmp_path / "a.sqlite", 0, middle), cut(source, tmp_path / "b.sqlite", middle, 1)
    report = compared(*parts)
    assert report.headline[0].template.startswith(("No difference", "Cannot tell")), said(report)
    assert "Calls for each call" not in said(report)
    assert table(report, "waterfall").empty


def test_calls_that_are_too_uneven_to_be_compared_are_counted(traces: Path, tmp_path: Path) -> None:
    source = traces / RECORDINGS["nsys uneven"][0]
    parts = cut(source, tmp_path / "a.sqlite", 0, 0.6), cut(source, tmp_path / "b.sqlite", 0.4, 1)
    assert "kernels and operators are called too unevenly to compare how often they run" in said(compared(*parts))


@pytest.mark.parametrize(
    ("name", "kernel"),
    [("nsys", "flash_fwd_kernel"), ("nsys", "CUDAFunctor_add<float>"), ("server", "_finalize_matmul_scatter_bf16")],
)
def test_a_kernel_that_is_called_less_often_is_named(traces: Path, tmp_path: Path, name: str, kernel: str) -> None:
    path, cut_of = RECORDINGS[name]
    suffix = "".join(Path(path).suffixes[-2:])
    targets = (tmp_path / f"base{suffix}", tmp_path / f"other{suffix}")
    paths = [cut_of(traces / path, target, 0, 1, text) for target, text in zip(targets, ("", kernel), strict=True)]
    sentences = [text for text in map(render, compared(*paths).headline) if text.startswith("Calls ")]
    assert len(sentences) == 1
    assert kernel.split("<")[0] in sentences[0]
