"""Tests that compilations are reported to a progress display, and that a terminal shows them."""

from __future__ import annotations

import sys

import pytest
from rich.status import Status

from perfkit_core.cli.output import COMPILING, working
from perfkit_core.runtime.compile import compiled_at_once, watched


def _new_function() -> object:
    """Return a function that cannot be in a cache, because it has no file."""
    names: dict[str, object] = {}
    exec("def twice(value):\n    return 2 * value\n", names)
    return compiled_at_once(names["twice"])


def test_compilation_is_reported_once_for_each_function() -> None:
    twice, told = _new_function(), []
    with watched(told.append):
        assert [twice(2), twice(3)] == [4, 6]  # type: ignore[operator]
        assert told == [True, False]
        assert twice(2.5) == 5.0  # type: ignore[operator]
        assert told == [True, False] * 2
    assert twice(2j) == 4j  # type: ignore[operator]
    assert told == [True, False] * 2


def test_a_terminal_shows_compilations(monkeypatch: pytest.MonkeyPatch) -> None:
    twice, shown = _new_function(), []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(Status, "update", lambda self, text: shown.append(text))
    with working("reading [b]x") as say:
        assert twice(2) == 4  # type: ignore[operator]
        say("rank 2")
    assert list(map(str, shown)) == [f"reading [b]x{COMPILING}", "reading [b]x", "rank 2"]
