"""The conversation in docs/agents-example.md: the official client gets these answers from a real process. Views, rules
and comparisons have their own tests; the page pins the numbers."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytest.importorskip("mcp", reason="the client of the official SDK is an extra")
pytest.importorskip("duckdb", reason="one question needs SQL, which is an extra")

from perfkit_core import load
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


def test_the_page_shows_what_the_client_gets(tmp_path: Path) -> None:
    """The recorded training with loader workers is as fast as the answer on workers predicts."""
    conversation = module("conversation")
    folder = module("blocks").prepare(tmp_path)
    answers = results([(question.tool, question.arguments) for question in conversation.QUESTIONS], folder)[1]
    left = iter(answers)
    page = conversation.page(lambda tool, arguments: next(left))
    assert (ROOT / "docs" / "agents-example.md").read_text(encoding="utf-8") == page, "run: python docs/generate.py"
    (advice,) = answers[5]["structuredContent"]["advice"]
    with_workers = load(DATA / "examples" / "torch-mlp-base.perfkit.parquet")
    assert advice["rule"] == "loader-workers"
    assert np.median(with_workers.ints("dur_ns")[with_workers.rows("kind", "step")]) < advice["prediction"]["p90_ns"]
