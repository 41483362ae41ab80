"""The code blocks of the documentation run: Python with the frameworks, commands on recordings in tests/data."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import shlex
import shutil
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest

from perfkit_core.cli.main import perfkit
from perfkit_core.trace.storage import store
from tests.support.paths import ROOT


def _module() -> ModuleType:
    spec = importlib.util.spec_from_file_location("blocks", ROOT / "docs" / "blocks.py")
    assert spec
    assert spec.loader
    module = sys.modules["blocks"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


docs = _module()
BLOCKS = [block for page in docs.pages() for block in docs.blocks(page)]
COMMANDS = {"", "bash"}
"""Languages of blocks with commands. README.md names no language."""
SHOWN = {"json", "text", "toml", "yaml", "{perfkit}", "{toctree}"}
"""Languages of other blocks. The build of the site runs {perfkit}, and fails if a command does."""
MEASURED = {"calibrate", "capture", "demo", "record", "verify", "view"}
"""Commands that run programs, measure or open a browser. Only their options are checked."""
NOT_RUN = 44
"""Number of blocks that cannot run. Each has its reason in the page. More of them need a good reason, too."""

RUN = [block for block in BLOCKS if block.reason is None]
LINES = {
    re.sub(r"\s+", " ", line): block
    for block in RUN
    if block.language in COMMANDS
    for line in docs.commands(block.text)
    if line.startswith("perfkit ")
}
PYTHON = sorted({block.page for block in RUN if block.language == "python"})


def test_every_block_names_its_language_and_runs_or_says_why_not() -> None:
    for block in BLOCKS:
        assert block.language in {*COMMANDS, *SHOWN, "python"}, block
        assert block.language or block.page == "README.md", f"{block}: name the language of the block"
    assert sum(block.reason is not None for block in BLOCKS) <= NOT_RUN
    for block in RUN:
        if block.language == "bash":
            others = [line for line in docs.commands(block.text) if not line.startswith("perfkit ")]
            assert not others, f"{block}: only commands of perfkit run; mark the block <!-- not run: REASON -->"
    assert len(LINES) > 45
    assert len(PYTHON) > 10


@pytest.fixture(scope="session")
def samples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return docs.prepare(tmp_path_factory.mktemp("docs"))


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.removeprefix("perfkit ")[:60])
def test_the_command_runs(line: str, samples: Path) -> None:
    """The exit code is 1 only if a gate fails."""
    name, *words = shlex.split(line)[1:]
    if name in MEASURED:
        command = perfkit.get_command(click.Context(perfkit), name)
        assert command is not None
        command.make_context(f"perfkit {name}", words, **perfkit.context_settings)
        return
    code, printed = docs.run(line, samples)
    assert code == 0 or (code == 1 and "--fail-on" in line), f"{LINES[line]}: {printed}"
    assert printed or "-o" in line


@pytest.mark.live
@pytest.mark.parametrize("page", PYTHON)
def test_the_python_of_the_page_runs(page: str, samples: Path, tmp_path: Path) -> None:
    """The blocks of a page run one after the other. What a page records is recorded by the real framework."""
    blocks = [block for block in RUN if (block.page, block.language) == (page, "python")]
    text = "\n".join(block.text for block in blocks)
    folder = tmp_path / "docs"
    recorded = re.findall(r'(?:trace_handler|PerfkitCallback)\("([^"]+)"', text)
    shutil.copytree(
        samples, folder, ignore=lambda place, _: [Path(run).name for run in recorded if place.endswith("runs")]
    )
    names: dict[str, Any] = {"__name__": "docs"}
    try:
        for block in blocks:
            framework = "paddle" if "paddle" in block.text or "paddle" in names else "torch"
            names |= _assumed(framework, names.get("assumed"))
            code = compile(textwrap.dedent(block.text), str(block), "exec")
            with contextlib.chdir(folder), contextlib.redirect_stdout(sys.stderr):
                exec(code, names)
    finally:
        names.clear()  # Paddle has one profiler at a time, so a failed page would make the next ones fail
    store.flush()
    for run in recorded:
        assert list((folder / run).glob("*.perfkit.parquet")), f"{page}: {run} was not recorded"


def _assumed(framework: str, assumed: str | None) -> dict[str, Any]:
    """Return what examples take for granted: a model, a loader with batches of two tensors, and a training step."""
    if assumed == framework:  # as the blocks before have left them
        return {}
    pytest.importorskip(framework, reason=f"the page needs {framework}")
    if framework == "torch":
        import torch

        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
        loader: Any = [(torch.randn(4, 8), torch.zeros(4, dtype=torch.int64))] * 40
        loss, clear = torch.nn.functional.cross_entropy, optimizer.zero_grad
    else:
        import paddle

        model = paddle.nn.Sequential(paddle.nn.Linear(8, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 4))
        optimizer = paddle.optimizer.SGD(0.1, parameters=model.parameters())
        loader = [(paddle.randn([4, 8]), paddle.zeros([4], dtype="int64"))] * 40
        loss, clear = paddle.nn.functional.cross_entropy, optimizer.clear_grad

    def train(images: Any, labels: Any = None) -> None:
        if labels is None:  # the batch
            images, labels = images
        loss(model(images), labels).backward()
        optimizer.step()
        clear()

    return {
        "assumed": framework, "model": model, "batch": loader[0][0], "loader": loader, "train": train,
        "train_step": train, "read": None, "sniff": None, "table": None,
    }  # fmt: skip
