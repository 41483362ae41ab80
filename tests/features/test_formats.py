"""Sums over steps, and every view in every format, in recordings of both frameworks."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

import perfkit_core
from perfkit_core.cli.main import main
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.trace.model.trace import Trace
from tests.support.paths import DATA

FILES = {"torch": DATA / "torch-mlp.json.gz", "paddle": DATA / "paddle-mlp.pb"}


@pytest.fixture(scope="module")
def run(framework: str) -> Trace:
    return perfkit_core.load(FILES[framework])


def test_steps_sum_to_all_steps_and_the_average_divides_them(run: Trace) -> None:
    """The numbers of all steps are the sums of the numbers of each step. The average is the sum divided by the number
    of steps."""
    steps = perfkit_core.summarize(run, "steps")["step"].to_list()
    assert len(steps) >= 2
    sums = ["calls", "self_cpu_ns", "total_cpu_ns"]
    whole = perfkit_core.summarize(run, "operators", steps=steps).set_index("name")[sums]
    each = perfkit_core.summarize(run, "operators", steps=steps, by="step")
    assert each.groupby("name")[sums].sum().to_dict() == whole.to_dict()
    one = perfkit_core.summarize(run, "operators", steps=steps[:1]).set_index("name")[sums]
    assert each[each["step"] == steps[0]].set_index("name")[sums].to_dict() == one.to_dict()
    average = perfkit_core.summarize(run, "operators", average=True).set_index("name")
    assert (average["calls"] * len(steps)).to_dict() == whole["calls"].to_dict()
    off = (average["total_cpu_ns"] * len(steps) - whole["total_cpu_ns"]).abs()
    assert (off <= len(steps) / 2).all()


def test_every_view_in_every_format(run: Trace, framework: str, tmp_path: Path) -> None:
    """JSON and CSV have all rows and columns of each view, and text and Markdown have its title."""
    views = get_plugins().views()
    tables = {view: perfkit_core.summarize(run, view) for view in views}
    command = ["summary", str(FILES[framework]), "-o", str(tmp_path / "output"), "--view"]

    def written(*options: str) -> str:
        assert main([*command, *options]) == 0
        return (tmp_path / "output").read_text(encoding="utf-8")

    for name in ("text", "markdown"):
        text = written("all", "--format", name).replace("\\", "")
        assert [view for view, declared in views.items() if declared.title not in text] == []
    rows = json.loads(written("all", "--format", "json"))["views"]
    assert {view: len(rows[view]) for view in views} == {view: len(table) for view, table in tables.items()}
    for view, table in tables.items():
        head, *lines = csv.reader(io.StringIO(written(view, "--format", "csv")))
        assert head == list(table)
        assert len(lines) == len(table)
        assert not rows[view] or list(rows[view][0]) == head
