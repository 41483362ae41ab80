"""Record and measure on a GPU: ``python -m benchmarks.gpu.record OUT``

python -m benchmarks.gpu.record OUT                          everything; no part begins after 440 s (--limit)
python -m benchmarks.gpu.record OUT --device cpu --quick     the same code in small sizes on a CPU, to try it
python -m benchmarks.gpu.record OUT --only pairs/no-tf32     only these parts; may be repeated, and a group is a part

The groups are ``programs`` (recordings with torch's own trace and numbers), ``checks`` (what perfkit says about the
machine), ``pairs`` (a waste and its fix: step times by turns without a profiler, and a recording of each), and
``overhead`` (what recording costs). Nothing is fetched. Nothing else may run on the machine meanwhile.
All parts take 12 minutes on an H100.

Each part runs in its own process. If it fails or takes too long, the table says so, and the others go on. OUT gets
``results.jsonl``, with a line for each part, ``parts-N.tar`` with the files and the output of the parts, each up to
15 MB, and ``table.txt``. All are written part by part, so a run that is ended leaves what it has done.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import sys
import tarfile
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.rounds import ROOT

MOST_TAR_BYTES = 15_000_000
LIMIT_S = 440.0
"""No part begins after this time."""
PART_S = 45.0
"""Longest time of a part, unless the part says otherwise."""
LONG_S = {"overhead/steps": 90.0, "overhead/million-perfkit": 90.0, "overhead/million-export": 90.0,
          "programs/compiled": 90.0, "pairs/compiled-scales": 90.0, "pairs/full-memory": 70.0}  # fmt: skip
LAST = ("pairs/sgd-loop", "pairs/zeros-on-host", "pairs/light-loader", "pairs/large-item", "pairs/large-layers",
        "pairs/full-memory")  # fmt: skip
"""Second pairs of a rule, and pairs whose fix saves no time."""
PRELOADED = ("torch", "perfkit_torch", "perfkit_torch.on_trace_ready", "perfkit_core.readers.load")


@dataclass(frozen=True, slots=True)
class Part:
    """A part: its name ``group/name``, and the function that runs it in its process."""

    name: str
    run: Callable[[str, str, bool, Path], dict[str, Any]]

    @property
    def seconds(self) -> float:
        return LONG_S.get(self.name, PART_S)


def run_program(name: str, device: str, quick: bool, folder: Path) -> dict[str, Any]:
    from benchmarks.gpu import programs, training

    return programs.record_program(name, training.Place(device, quick), folder)


def run_check(name: str, device: str, quick: bool, folder: Path) -> dict[str, Any]:
    from benchmarks.gpu import checks, training

    return checks.CHECKS[name](training.Place(device, quick), folder)


def run_pair(name: str, device: str, quick: bool, folder: Path) -> dict[str, Any]:
    from benchmarks.gpu import pairs, training
    from benchmarks.gpu.pairs.pair import measure_pair

    return measure_pair(pairs.PAIRS[name], training.Place(device, quick), folder)


def run_overhead(name: str, device: str, quick: bool, folder: Path) -> dict[str, Any]:
    from benchmarks.gpu import overhead, training

    place = training.Place(device, quick)
    if name == "steps":
        return overhead.measure_steps(place, folder)
    way = {"million-perfkit": "perfkit", "million-export": "export_chrome_trace"}[name]
    return overhead.measure_million(way, place, folder)


def run_probe(name: str, device: str, quick: bool, folder: Path) -> dict[str, Any]:
    """Use the device once, with a profiler. Fails if processes cannot use it or record no kernels."""
    import torch

    with torch.profiler.profile() as profiler:
        torch.ones(8, device=device).sum().item()
    kinds = {event.device_type.name.lower() for event in profiler.events()}
    if device not in kinds:
        raise RuntimeError(f"events of {', '.join(kinds)}, but none of {device}")
    return {}


def parts() -> list[Part]:
    """Return all parts, in the order in which they run: what matters most comes first."""
    from benchmarks.gpu.checks import CHECKS
    from benchmarks.gpu.pairs import PAIRS
    from benchmarks.gpu.programs import PROGRAMS

    pairs = [f"pairs/{name}" for name in PAIRS]
    first = [name for name in pairs if name not in LAST]
    return [
        *(Part(f"programs/{name}", run_program) for name in PROGRAMS),
        *(Part(f"checks/{name}", run_check) for name in CHECKS),
        Part("overhead/steps", run_overhead),
        *(Part(name, run_pair) for name in first),
        Part("overhead/million-perfkit", run_overhead),
        Part("overhead/million-export", run_overhead),
        *(Part(name, run_pair) for name in pairs if name in LAST),
    ]


def in_child(part: Part, device: str, quick: bool, folder: Path) -> None:
    """Run a part in this process, with its output in a file, and write its result or its error."""
    os.setsid()  # so that the parent can end all processes of the part
    output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    try:
        result = part.run(part.name.partition("/")[2], device, quick, folder)
    except BaseException as error:
        os.write(2, traceback.format_exc().encode())
        result = {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]}
    (folder / "result.json").write_text(json.dumps(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # without the end of a library, which may wait for its threads


def run_part(context: Any, part: Part, device: str, quick: bool, folder: Path, seconds: float) -> dict[str, Any]:
    """Run a part in a new process for at most this time. Return its result, or a dictionary with the key "error"."""
    start = time.monotonic()
    process = context.Process(target=in_child, args=(part, device, quick, folder))
    process.start()
    process.join(seconds)
    late = process.is_alive()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # workers of a loader or a compiler may live on
    if late:
        process.kill()
        process.join(5)
        result: dict[str, Any] = {"error": f"ended after {seconds:.0f} s"}
    elif (folder / "result.json").exists():
        result = json.loads((folder / "result.json").read_text())
    else:
        result = {"error": f"the process ended with code {process.exitcode}"}
    (folder / "result.json").unlink(missing_ok=True)
    return {"part": part.name, "seconds": round(time.monotonic() - start, 2), **result}


class Results:
    """The files in OUT. Every part is added at once."""

    def __init__(self, out: Path) -> None:
        self.out, self.number = out, 1
        self.rows: list[dict[str, Any]] = []
        out.mkdir(parents=True, exist_ok=True)

    def add(self, result: dict[str, Any], folder: Path) -> None:
        """Add the result of a part, and the files of its folder."""
        files = [file for file in folder.rglob("*") if file.is_file()]
        result["bytes"] = sum(file.stat().st_size for file in files)
        self.rows.append(result)
        with (self.out / "results.jsonl").open("a") as lines:
            lines.write(json.dumps(result) + "\n")
        (self.out / "table.txt").write_text("".join(f"{row(one)}\n" for one in self.rows))
        tar = self.out / f"parts-{self.number}.tar"
        if tar.exists() and tar.stat().st_size + result["bytes"] > MOST_TAR_BYTES:
            self.number += 1
            tar = self.out / f"parts-{self.number}.tar"
        if result["bytes"] < MOST_TAR_BYTES:
            with tarfile.open(tar, "a") as archive:
                archive.add(folder, result["part"])


def row(result: dict[str, Any]) -> str:
    """Return the line of a part in the table: name, steps, events, size, time, what else it says, and whether it went
    well."""
    more = result.get("error", "ok")
    if "truth" in result:
        base, change = (sorted(result["truth"][side]) for side in ("base_ms", "change_ms"))
        more += f"  {base[len(base) // 2]:.2f} -> {change[len(change) // 2]:.2f} ms"
    if "exit_codes" in result:
        more += f"  exit codes {result['exit_codes']}"
    if "held_seconds" in result:
        more += f"  training waits {result['held_seconds']:.2f} s, all {result['seconds_all']:.2f} s"
    return (
        f"{result['part']:32}{result.get('steps', ''):>6}{result.get('events', ''):>9}"
        f"{result.get('bytes', 0) / 1e3:>8.0f} kB{result['seconds']:>7.1f} s  {more}"
    )


def started(device: str, work: Path) -> Any:
    """Return the way to start processes. A server that has imported torch starts them fast; if they cannot use the
    device, each process begins anew."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(PRELOADED))
    (work / "probe").mkdir()
    probe = run_part(context, Part("probe", run_probe), device, True, work / "probe", 60)
    if "error" not in probe:
        return context
    print(f"processes of a server cannot use the device ({probe['error']}); starting new ones", flush=True)
    return multiprocessing.get_context("spawn")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", action="append", default=[], metavar="PART", help="only this part or group")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="no part begins after this time (s)")
    options = parser.parse_args()
    begin = time.monotonic()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # torch's profiler prints a line whenever it starts or stops
    chosen = [part for part in parts() if not options.only or set(options.only) & {part.name, part.name.split("/")[0]}]
    results = Results(options.out)
    with tempfile.TemporaryDirectory() as work:
        context = started(options.device, Path(work))
        for part in chosen:
            left = options.limit + PART_S / 2 - (time.monotonic() - begin)
            folder = Path(work) / part.name
            folder.mkdir(parents=True)
            if left < PART_S / 2:
                result: dict[str, Any] = {"part": part.name, "seconds": 0.0, "error": "not begun: no time left"}
            else:
                result = run_part(context, part, options.device, options.quick, folder, min(part.seconds, left))
            results.add(result, folder)
            print(f"{time.monotonic() - begin:6.1f} s  {row(result)}", flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    print("\nname, steps, events, size, time, result")
    print((options.out / "table.txt").read_text())
    failed = [one["part"] for one in results.rows if "error" in one]
    print(f"{len(results.rows)} parts in {time.monotonic() - begin:.0f} s, {len(failed)} failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
