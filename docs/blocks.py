"""The code blocks of the documentation, and the folder of sample recordings in which they run.

Every block names its language. Blocks of Python and of bash run as tests. A block that cannot run has a comment with
the reason on the line before it::

    <!-- not run: needs a cluster -->

A block ``{perfkit}`` contains commands, too. They run when the site is built, which shows their output.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from perfkit_core.cli.main import main

ROOT = Path(__file__).resolve().parents[1]
DATA = ROOT / "tests" / "data"
_EXAMPLES = DATA / "examples"
SAMPLES = {
    "runs/baseline": "torch-mlp-loader", "runs/workers": "torch-mlp-base",
    "runs/main": "torch-mlp-base", "runs/main-1": "torch-mlp-base", "runs/main-2": "torch-mlp-base",
    "runs/change": "torch-mlp-layer", "runs/change-1": "torch-mlp-layer",
    "runs/change-2": "torch-mlp-layer",
    "runs/paddle-baseline": "paddle-mlp-loader", "runs/before": "torch-mlp-loader",
    "runs/torch": "torch-transformer-base", "runs/paddle": "paddle-transformer-base",
    "old/torch": "torch-transformer-plain", "old/paddle": "paddle-transformer-plain",
}  # fmt: skip
"""Run folder in examples → the recording in tests/data/examples that it contains."""
FILES = {"RUN": "torch-mlp.json.gz", "trace.json.gz": "torch-mlp.json.gz"}
"""File in examples → the recording in tests/data that it is."""
RANKS = ("runs/eight", "runs/big", ".")
"""Folders in examples that contain the files of eight ranks, rank0.json to rank7.json."""

_FENCE = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+?) -->\n)?(?P<ticks> *```+)(?P<language>\S*)\n(?P<text>.*?)^(?P=ticks)$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A block of code. ``reason`` says why it is not run; None if it is."""

    page: str
    line: int
    language: str
    text: str
    reason: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return the pages whose blocks run: those of the site, and those at the root of the repository."""
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for fence in _FENCE.finditer(text):
        line = text.count("\n", 0, fence.start("ticks")) + 1
        yield Block(str(page.relative_to(ROOT)), line, fence["language"], fence["text"], fence["reason"])


def commands(text: str) -> list[str]:
    """Return the command lines of a block: without comments, and with continued lines joined."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [line for line in (re.sub(r"(^|\s+)#.*$", "", line) for line in lines) if line]


def prepare(folder: Path) -> Path:
    """Fill an empty folder with the sample recordings that the examples name."""
    for name, recording in SAMPLES.items():
        run = folder / name
        run.mkdir(parents=True)
        shutil.copyfile(_EXAMPLES / f"{recording}.perfkit.parquet", run / "rank0-cycle00000.perfkit.parquet")
    for name, recording in FILES.items():
        shutil.copyfile(DATA / recording, folder / name)
    shutil.copyfile(ROOT / "perfkit_core" / "advice" / "outcomes.jsonl", folder / "ledger.jsonl")
    (rates,) = (block.text for block in blocks(ROOT / "docs" / "roofline.md") if block.language == "toml")
    (folder / "rates.toml").write_text(rates, encoding="utf-8")
    for place in map(folder.joinpath, RANKS):
        place.mkdir(parents=True, exist_ok=True)
        for file in (DATA / "ranks").glob("*.gz"):
            (place / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    return folder


def run(command: str, folder: Path) -> tuple[int, str]:
    """Run ``perfkit …`` of this process in ``folder``. Return its exit code, and what it printed, errors included."""
    program, *words = shlex.split(command, comments=True)
    if program != "perfkit":
        raise ValueError(f"not a command of perfkit: {command}")
    printed = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        arguments = [name for word in words for name in _expanded(word, f"'{word}'" in command)]
        try:
            code = main(arguments)
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
    return code, printed.getvalue()


def _expanded(word: str, quoted: bool) -> list[str]:
    """Return the files in the current folder that an unquoted pattern names, as a shell does, else the word."""
    pattern = "*" in word and not quoted
    return sorted(map(str, Path().glob(word))) or [word] if pattern else [word]
