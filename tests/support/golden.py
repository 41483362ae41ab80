"""Golden outputs: what a command or a renderer printed when it was last read by a person, in ``tests/golden``.

Run a test with ``PERFKIT_GOLDEN=1`` to write its files, and read their diff as a user would before you commit it.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Sequence

import pytest

from perfkit_core.cli.main import main
from perfkit_core.output.renderers.text import WIDEST_PIPE
from tests.support.paths import ROOT

GOLDEN = ROOT / "tests" / "golden"


def check_golden(name: str, text: str) -> None:
    """Compare a text with the golden file ``name``, such as ``"cli/advise.txt"``."""
    path = GOLDEN / name
    if os.environ.get("PERFKIT_GOLDEN") == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.exists(), f"no golden file {path}: run with PERFKIT_GOLDEN=1"
    saved = path.read_text(encoding="utf-8")
    if text != saved:  # pytest shortens the texts of its own comparison where it runs for CI
        diff = "\n".join(difflib.unified_diff(saved.splitlines(), text.splitlines(), "saved", "now", n=1, lineterm=""))
        pytest.fail(f"{path} differs: read the diff, then run with PERFKIT_GOLDEN=1\n{diff}", pytrace=False)


def command_output(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[object], code: int = 0, folders: Sequence[object] = ()
) -> str:
    """Run a command in this process, and return its output, then its errors. ``folders`` that appear in it are replaced
    by ``FOLDER``, since they differ between machines."""
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", str(WIDEST_PIPE))  # the width also depends on the terminal in which the tests run
        assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    text = captured.out + (f"\n[errors]\n{captured.err}" if captured.err else "")
    for folder in folders:
        text = text.replace(str(folder), "FOLDER")
    return text
