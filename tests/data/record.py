"""Make the recordings in this folder: ``python -m tests.data.record``. This needs torch and Paddle.

Each recording is a small training, exported by the framework's own profiler. ``*.native.json`` has the numbers that the
framework computes for the recording, as integers in ns. ``provenance.json`` has versions and dates.
"""

from __future__ import annotations

import gzip
import json
import os
import platform
import tempfile
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def record_torch() -> str:
    import torch

    from tests.support.torch_models import train

    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "trace.json"
        averages: list[Any] = []

        def ready(profiler: Any) -> None:
            averages.extend(profiler.key_averages())
            profiler.export_chrome_trace(str(exported))

        train("mlp", ready, record_shapes=True, profile_memory=True)
        _write_gzip("torch-mlp.json.gz", exported.read_bytes())
    rows = {
        e.key: {"calls": e.count, "total_cpu_ns": round(e.cpu_time_total * 1000),
                "self_cpu_ns": round(e.self_cpu_time_total * 1000)}
        for e in averages if e.key != "[memory]"
    }  # fmt: skip
    _write_json("torch-mlp.native.json", rows)
    return str(torch.__version__)


def record_paddle() -> str:
    import paddle
    from paddle.profiler.profiler_statistic import StatisticData

    results: list[Any] = []
    net = paddle.nn.Sequential(paddle.nn.Linear(16, 32), paddle.nn.ReLU(), paddle.nn.Linear(32, 4))
    optimizer = paddle.optimizer.Adam(parameters=net.parameters())
    with paddle.profiler.Profiler(
        scheduler=(2, 4), profile_memory=True, on_trace_ready=lambda profiler: results.append(profiler.profiler_result)
    ) as profiler:
        for _ in range(4):
            with paddle.profiler.RecordEvent("iteration"):
                net(paddle.randn([8, 16])).square().sum().backward()
                optimizer.step()
                optimizer.clear_grad()
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        results[0].save(f"{folder}/trace.json", "json")
        results[0].save(f"{folder}/trace.pb", "pb")
        _write_gzip("paddle-mlp.json.gz", Path(folder, "trace.json").read_bytes())
        (HERE / "paddle-mlp.pb").write_bytes(Path(folder, "trace.pb").read_bytes())
    items = StatisticData(results[0].get_data(), results[0].get_extra_info()).event_summary.items
    rows = {name: {"calls": item.call, "total_cpu_ns": item.cpu_time} for name, item in items.items()}
    _write_json("paddle-mlp.native.json", rows)
    return str(paddle.__version__)


def _write_gzip(name: str, content: bytes) -> None:
    (HERE / name).write_bytes(gzip.compress(content, mtime=0))


def _write_json(name: str, content: Any) -> None:
    (HERE / name).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    versions = {"torch": record_torch(), "paddle": record_paddle(), "python": platform.python_version()}
    about = {"script": "tests/data/record.py", "date": date.today().isoformat(), "device": "cpu",
             "cores": os.cpu_count(), "versions": versions}  # fmt: skip
    _write_json("provenance.json", about)
