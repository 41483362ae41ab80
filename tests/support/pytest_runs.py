"""Runs of pytest with the plugin in new processes, whose output depends on nothing but the tests."""

from __future__ import annotations

import importlib.util
import textwrap
from pathlib import Path

import pytest

from tests.support import recording_scripts
from tests.support.paths import ROOT

PLUGIN = ("-p", "perfkit_core.integrations.pytest_plugin.hooks")
CHANGE_THE_OUTPUT = ("CI", "BUILD_NUMBER", "PYTEST_ADDOPTS", "PYTEST_PLUGINS", "PY_COLORS", "FORCE_COLOR", "NO_COLOR")
"""Variables that change what pytest prints. With CI or BUILD_NUMBER, for example, it prints messages in full."""


def plain_environment(monkeypatch: pytest.MonkeyPatch, width: int = 120) -> None:
    """Let the runs of pytest find perfkit, and no plugin of this environment."""
    for name in CHANGE_THE_OUTPUT:
        monkeypatch.delenv(name, raising=False)
    changed = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT), "COLUMNS": str(width)}
    for name, value in changed.items():
        monkeypatch.setenv(name, value)


FORKED = """
import os, sys, warnings
sys.warnoptions.clear()
warnings.resetwarnings()
os.chdir(sys.argv[1])
os.dup2(os.open("stdout", os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 1)
sys.stdout, sys.stderr = (open(number, "w", encoding="utf-8", closefd=False) for number in (1, 2))
import pytest
sys.exit(pytest.main({arguments}))
"""


def forked_run(folder: Path, *arguments: str, framework: str = "torch") -> pytest.RunResult:
    """Run pytest in a folder with the plugin, in a fork of a process that has imported the framework."""
    if not importlib.util.find_spec(framework):
        pytest.skip(f"{framework} is not installed")
    script = FORKED.format(arguments=[*PLUGIN, *arguments])
    modules = recording_scripts.FRAMEWORK_MODULES[framework]
    code, told = recording_scripts.run(script, folder, prelude="", modules=modules)
    return pytest.RunResult(code, (folder / "stdout").read_text("utf-8").splitlines(), told.splitlines(), 0)


MODELS = {
    "torch": """
        import pytest, torch
        torch.ones(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
        x = torch.ones(4, 8)
    """,
    "paddle": """
        import pytest, paddle
        model = paddle.nn.Sequential(paddle.nn.Linear(8, 8), paddle.nn.ReLU(), paddle.nn.Linear(8, 4))
        x = paddle.ones([4, 8])
    """,
}


def file_of_tests(framework: str, tests: str) -> str:
    """Return the text of a test file: the model of the framework, and the tests."""
    if not importlib.util.find_spec(framework):  # importing it here would import it twice, which torch does not survive
        pytest.skip(f"{framework} is not installed")
    return "\n".join(map(textwrap.dedent, (MODELS[framework], tests)))
