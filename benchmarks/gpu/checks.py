"""What perfkit says about a machine with a GPU, and features that only a GPU can try: commands and their output."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import perfkit_torch
from benchmarks.gpu.programs import item, mlp
from benchmarks.gpu.training import Place
from benchmarks.machine import machine
from benchmarks.rounds import ROOT

SECONDS = 60
"""Longest time of a command."""
PERFKIT = (sys.executable, "-m", "perfkit")


def run(folder: Path, name: str, *command: str, **environment: str) -> int | None:
    """Run a command. Write its output and exit code into the folder, and return the exit code; None if it is absent."""
    if shutil.which(command[0]) is None:
        return None
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=SECONDS, check=False,
    )  # fmt: skip
    (folder / name).write_bytes(done.stdout + f"\n[exit code {done.returncode}]\n".encode())
    return done.returncode


def provenance(place: Place, folder: Path) -> dict[str, Any]:
    """The machine, its device and driver, and all versions."""
    run(folder, "nvidia-smi.txt", "nvidia-smi")
    run(folder, "nvidia-smi-q.txt", "nvidia-smi", "-q")
    found: dict[str, Any] = {name: getattr(machine(), name) for name in ("date", "cpu", "cores", "python", "libraries")}
    named = ((one.metadata["Name"] or "", one.version) for one in metadata.distributions())
    found["packages"] = {name: version for name, version in named if re.search("cupti|triton|nvidia|pytest$", name)}
    found |= {"torch": str(torch.__version__), "cuda": torch.version.cuda, "device": place.name}
    if place.device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        named = (name for name in dir(properties) if not name.startswith("_"))
        found["properties"] = {name: str(getattr(properties, name)) for name in named}
        found["cudnn"], found["nccl"] = torch.backends.cudnn.version(), torch.cuda.nccl.version()
    (folder / "provenance.json").write_text(json.dumps(found, indent=1))
    return {"device": place.name}


def doctor(place: Place, folder: Path) -> dict[str, Any]:
    codes = [run(folder, "doctor.txt", *PERFKIT, "doctor"), run(folder, "doctor.json", *PERFKIT, "doctor", "--json")]
    return {"exit_codes": codes}


def calibrate(place: Place, folder: Path) -> dict[str, Any]:
    """What tiny operators, launches and copies cost on this machine."""
    arguments = ("calibrate", "--framework", "torch", "--refresh", "--format", "json")
    return {"exit_codes": [run(folder, "calibrate.json", *PERFKIT, *arguments, XDG_CACHE_HOME=str(folder / "cache"))]}


def budgets(place: Place, folder: Path) -> dict[str, Any]:
    """The pytest plugin counts kernels, waits and copies. Two of five tests fail on purpose."""
    arguments = ("-q", "--noconftest", "-p", "no:cacheprovider", "benchmarks/gpu/budget_check.py")
    code = run(folder, "pytest.txt", sys.executable, "-m", "pytest", *arguments, PERFKIT_DEVICE=place.device)
    return {"exit_codes": [code]}


def on_demand(place: Place, folder: Path) -> dict[str, Any]:
    """``perfkit capture`` asks a running training for steps."""
    script = (
        "from pathlib import Path; from benchmarks.gpu import checks, training; "
        f"checks.demanded(training.Place({place.device!r}, {place.quick}), Path({str(folder / 'run')!r}))"
    )
    with (folder / "training.txt").open("wb") as output:
        training = subprocess.Popen((sys.executable, "-c", script), cwd=ROOT, stdout=output, stderr=output)
        try:
            while not (folder / "run" / "begun").exists() and training.poll() is None:
                time.sleep(0.1)
            code = run(folder, "capture.txt", *PERFKIT, "capture", str(training.pid), "--steps", "5", "--timeout", "30")
        finally:
            training.kill()
            training.wait()
    (folder / "run" / "begun").unlink(missing_ok=True)
    summary = run(folder, "summary.txt", *PERFKIT, "summary", str(folder / "run"))
    return {"exit_codes": [code, summary], "steps": 5}


def demanded(place: Place, folder: Path) -> None:
    """Train for a minute with a handler on demand."""
    handler = perfkit_torch.trace_handler(folder, on_demand=True)
    schedule = perfkit_torch.schedule(on_demand=handler)
    end = time.monotonic() + SECONDS
    with torch.profiler.profile(schedule=schedule, on_trace_ready=handler) as profiler:
        for number, _ in enumerate(item(place)):
            profiler.step()
            if number == 10:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "begun").touch()
            if time.monotonic() > end:
                break


def snapshot(place: Place, folder: Path) -> dict[str, Any]:
    """A memory snapshot of torch, and the allocator's own numbers."""
    if place.device != "cuda":
        return {}
    torch.cuda.memory._record_memory_history(max_entries=100_000, stacks="python")
    training = mlp(place)
    for _ in islice(training, 3):
        torch.cuda.synchronize()
    file = folder / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(file))
    (folder / "memory-stats.json").write_text(json.dumps(torch.cuda.memory_stats(), indent=1))
    code = run(folder, "summary.txt", *PERFKIT, "summary", str(file))
    with gzip.open(f"{file}.gz", "wb") as packed:
        packed.write(file.read_bytes())
    file.unlink()
    return {"exit_codes": [code]}


def throughput(place: Place, folder: Path) -> dict[str, Any]:
    """``Throughput`` with events on the device, and the same loop by the host clock with synchronisations."""
    found: dict[str, Any] = {"blocks_ms": []}
    for _ in range(3):
        training, timer = mlp(place), perfkit_torch.Throughput(warmup=10)
        for _ in islice(training, 10):
            pass
        place.module.synchronize()
        with timer:
            start = time.perf_counter()
            for _ in islice(training, 60):
                timer.step(num_samples=256)
            place.module.synchronize()
            found["blocks_ms"].append((time.perf_counter() - start) / 60 * 1e3)
        found["summary"] = timer.summary().to_dict()
    (folder / "throughput.json").write_text(json.dumps(found, indent=1, default=str))
    return {"steps": 60}


def nvtx(place: Place, folder: Path) -> dict[str, Any]:
    """``perfkit record`` of an unchanged script, which also has NVTX ranges if there is a device."""
    script = folder / "script.py"
    script.write_text(
        "from benchmarks.gpu import checks, programs, training\n"
        f"checks.ranged(programs.mlp(training.Place({place.device!r}, {place.quick})), {place.device == 'cuda'})\n"
    )
    options = ("record", "--steps", "4", "--shapes", "--memory", "-o", str(folder / "run"))
    return {"exit_codes": [run(folder, "record.txt", *PERFKIT, *options, str(script))], "steps": 4}


def ranged(training: Iterator[None], device: bool) -> None:
    for number in range(12):
        with torch.cuda.nvtx.range(f"iteration {number}") if device else contextlib.nullcontext():
            next(training)


CHECKS: dict[str, Callable[[Place, Path], dict[str, Any]]] = {
    "provenance": provenance, "doctor": doctor, "budgets": budgets, "on-demand": on_demand, "snapshot": snapshot,
    "calibrate": calibrate, "throughput": throughput, "record": nvtx,
}  # fmt: skip
