"""Write what perfkit prints about real recordings, to compare two versions: ``python tools/outputs.py FOLDER``.

The folder gets one file for each recording and command: all tables, the first screen, the advice, comparisons with
gates, and checksums of the exported files. After a change that should change no number, run it again with another
folder, and compare both with ``diff -r``. The recordings are those in the tests and those that ``PERFKIT_TRACES`` names
(see CONTRIBUTING.md).
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final
from unittest import mock

ROOT: Final = Path(__file__).resolve().parents[1]
TRACES: Final = Path(os.environ.get("PERFKIT_TRACES", ROOT.parent / "shared" / "traces"))
SUFFIXES: Final = (".json", ".json.gz", ".pb", ".pb.gz", ".sqlite", ".parquet", ".pickle")
"""Names of files that may be recordings. A file of another kind gives an error, which is compared as well."""
JOBS: Final = (
    "torch/dlrm-8xv100", "ascend/text/level0", "ascend/text/level1", "ascend/db", "paddle/cpu-3.3.1/repeat3",
)  # fmt: skip
"""Folders that hold the ranks of a job, or several recordings of one program."""
PAIRS: Final = (
    ("torch/pairs/resnet50-workers0.json.gz", "torch/pairs/resnet50-workers4.json.gz"),
    ("torch/h100-vit.json.gz", "torch/mi300x-vit.json.gz"),
    ("torch/h100-bert-small.json.gz", "torch/mi300x-bert-small.json.gz"),
    ("torch/sampled-rank0.json.gz", "torch/sampled-rank1.json.gz"),
    ("torch/resnet-param.json.gz", "paddle/cpu-3.3.1/cnn_small/cycle0.pb"),
    ("paddle/cpu-3.3.1/cnn_small/cycle0.pb", "paddle/cpu-3.3.1/cnn_small_flags/cycle0.pb"),
    ("serving/b300-deepseek-decode.json.gz", "serving/mi300x-deepseek-decode.json.gz"),
    ("nsys/h100-2gpu-1s.sqlite", "nsys/mfu-2gpu-before.sqlite"),
)
COMMANDS: Final = {
    "tables.json": ("summary", "--view", "all", "--format", "json"),
    "steps-by.json": ("summary", "--view", "operators,kernels,modules", "--by", "step", "--format", "json"),
    "shapes.csv": ("summary", "--view", "operators", "--by", "shape", "--format", "csv"),
    "native.json": ("summary", "--view", "operators,kernels", "--native", "--format", "json"),
    "step0.json": ("summary", "--step", "0-1", "--view", "partition,operators,device", "--format", "json"),
    "screen.txt": ("summary",),
    "screen.zh.txt": ("summary", "--lang", "zh"),
    "advice.json": ("advise", "--limit", "0", "--format", "json"),
    "advice.txt": ("advise", "--limit", "0"),
}
EXPORTS: Final = ("chrome", "folded", "speedscope", "csv")
GATES: Final = ("--fail-on", "step_time > 3%", "--fail-on", "operators.self_cpu_ns > +2ms", "--fail-on", "kernels > 1%")
COMPARISONS: Final = {
    "comparison.json": ("--view", "all", "--format", "json"),
    "comparison.txt": ("--limit", "0"),
    "gates.txt": GATES,
}
_CHANGING: Final = re.compile(r"/tmp/\S+|\b0x[0-9a-f]+\b|perfkit: compiling [^\n]*\n")
"""Texts that differ in each run, or depend on what was compiled before."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder to write")
    parser.add_argument("--only", default="", help="only recordings whose path contains this text")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--one", nargs="+", help=argparse.SUPPRESS)  # the recording, or the pair, of a child process
    options = parser.parse_args()
    if options.one:
        write(options.folder, [Path(path) for path in options.one])
        return
    jobs = [[path] for path in recordings()] + [[TRACES / path for path in pair] for pair in PAIRS]
    selected = [job for job in jobs if any(options.only in str(path) for path in job)]

    def run(job: list[Path]) -> None:
        command = [sys.executable, __file__, str(options.folder.resolve()), "--one", *map(str, job)]
        env = os.environ | {"PYTHONPATH": str(ROOT)}  # the code of this checkout
        ended = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        print(*job, "" if ended.returncode == 0 else f"FAILED: {ended.stderr[-500:]}", flush=True)

    with ThreadPoolExecutor(options.processes) as pool:
        list(pool.map(run, selected))


def recordings() -> Iterator[Path]:
    """Yield the files and folders that are read."""
    for folder in (ROOT / "tests" / "data", TRACES):
        for path in sorted(folder.rglob("*")):
            if path.is_file() and path.name.endswith(SUFFIXES):
                yield path
    yield from (TRACES / job for job in JOBS)


def write(folder: Path, sources: list[Path]) -> None:
    """Write the outputs of all commands for a recording, or for a pair of recordings."""
    names = [str(path.relative_to(TRACES if path.is_relative_to(TRACES) else ROOT)) for path in sources]
    target = folder / "+".join(name.replace("/", "_") for name in names)
    target.mkdir(parents=True, exist_ok=True)
    paths = list(map(str, sources))
    if len(sources) > 1:
        for name, arguments in COMPARISONS.items():
            (target / name).write_text(output("compare", *paths, *arguments))
        return
    for name, arguments in COMMANDS.items():
        (target / name).write_text(output(*arguments, *paths))
    for form in EXPORTS:
        with tempfile.TemporaryDirectory() as temporary:
            file = Path(temporary) / "exported"
            printed = output("export", *paths, "--to", form, "-o", str(file))
            checksum = hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else "no file"
            (target / f"{form}.sha256").write_text(f"{printed}{checksum}\n")


def output(*arguments: str) -> str:
    """Return what a command prints, with its exit code."""
    from perfkit_core.cli.main import main as perfkit

    printed, code = io.StringIO(), None
    with (
        mock.patch.object(sys, "argv", ["perfkit", *arguments]),
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(printed),
    ):
        try:
            code = perfkit()
        except SystemExit as exit:
            code = exit.code
    return _CHANGING.sub("", f"{printed.getvalue()}\nexit code {code or 0}\n")


if __name__ == "__main__":
    main()
