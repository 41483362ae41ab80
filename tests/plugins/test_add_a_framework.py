"""The adapter on the page "Add a framework" works as the page says, in one module."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from perfkit_core.advice.engine import advise
from perfkit_core.api import summarize
from perfkit_core.plugins.manager import EntryPoint, load
from perfkit_core.readers.load import load as read
from tests.support.paths import ROOT

pytestmark = pytest.mark.bare

PAGE = (ROOT / "docs" / "add-a-framework.md").read_text(encoding="utf-8")
BLOCKS = dict(zip(("json", "adapter", "toml", "test"), re.findall(r"```\w+\n(.*?)```", PAGE, re.DOTALL), strict=True))


def test_the_adapter_on_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "perfkit_sail.py").write_text(BLOCKS["adapter"], encoding="utf-8")
    (tmp_path / "sail.json").write_text(BLOCKS["json"], encoding="utf-8")
    (tmp_path / "test_sail.py").write_text("from pathlib import Path\n" + BLOCKS["test"], encoding="utf-8")
    try:
        importlib.import_module("test_sail").test_sail(tmp_path / "stored")
        name, value = re.findall(r'^(\w+) = "(\w+)"$', BLOCKS["toml"], re.MULTILINE)[0]
        plugins = load([EntryPoint(name, value)])
        trace = read(tmp_path / "sail.json", plugins=plugins)
        operators = summarize(trace, "operators").set_index("name")
        assert operators["self_cpu_ns"].to_dict() == {"sail.mm": 50_000, "sail.relu": 20_000}
        assert [remedy.api for remedy in plugins.framework("sail").remedies()] == ["sail.compile"]
        assert advise(trace, plugins=plugins).not_evaluable is not None
        assert plugins.listed["sail"].error is None
    finally:
        for module in ("perfkit_sail", "test_sail"):
            sys.modules.pop(module, None)
