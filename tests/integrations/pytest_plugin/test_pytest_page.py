"""The runs of pytest on the page docs/pytest.md are real: they are reproduced here, without the time they took."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable
from importlib.metadata import version

import pytest

from tests.support.paths import ROOT
from tests.support.pytest_runs import forked_run, plain_environment

pytest_plugins = "pytester"
pytestmark = [pytest.mark.live, pytest.mark.slow]
PAGE = ROOT / "docs" / "pytest.md"
WIDTH = 96


def test_the_runs_on_the_page(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """With PERFKIT_UPDATE=1, the page is written. The operators are those of the torch that the tests run with."""
    if not importlib.util.find_spec("torch") or not version("torch").startswith(_constrained()):
        pytest.skip("the page shows the operators of another torch")
    plain_environment(monkeypatch, WIDTH)
    page = PAGE.read_text(encoding="utf-8")
    first, sections, bare = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    setup = first.partition("@pytest")[0]
    pytester.makepyfile(test_model=first)
    shown = [run(pytester)]
    pytester.makepyfile(test_model=setup + sections)
    assert run(pytester).splitlines()[-1] == "1 passed"
    pytester.makepyfile(test_model=setup + bare)
    shown.append(run(pytester, "--perf-update"))
    pytester.makepyfile(test_model=setup.replace("torch.nn.ReLU()", "torch.nn.ReLU(), torch.nn.Softmax(1)") + bare)
    shown.append(run(pytester))
    if os.environ.get("PERFKIT_UPDATE"):
        PAGE.write_text(replaced(page, iter(shown).__next__), encoding="utf-8")
    assert re.findall(r"^```text\n(.*?)^```", page, re.DOTALL | re.MULTILINE) == shown


def run(pytester: pytest.Pytester, *options: str) -> str:
    result = forked_run(pytester.path, "-q", *options)
    lines = [re.sub(r" in [\d.]+s( \(\d+:\d+:\d+\))?$", "", line.rstrip()) for line in result.outlines]
    return "\n".join([" ".join(["$ pytest -q", *options]), *lines]) + "\n"


def replaced(page: str, shown: Callable[[], str]) -> str:
    return re.sub(r"^```text\n.*?^```", lambda _: f"```text\n{shown()}```", page, flags=re.DOTALL | re.MULTILINE)


def _constrained() -> str:
    (pinned,) = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    return str(pinned)
