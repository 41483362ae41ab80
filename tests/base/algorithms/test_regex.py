"""Tests that users' regular expressions match as written, are refused in one line, and are never slow."""

from __future__ import annotations

import pytest

from perfkit_core.base.algorithms.arrays import LONGEST_PATTERN, matches
from perfkit_core.errors import UsageError


def test_finds_a_match_anywhere_and_none_in_null() -> None:
    assert matches(["aten::mm", "addmm", None, ""], "^aten|dm").tolist() == [True, True, False, False]
    assert matches(["Ünïcode", "日本"], "本|ï").tolist() == [True, True]
    assert matches([], "x").tolist() == []


def test_nested_repetition_takes_linear_time() -> None:
    """For (a+)+$, a backtracking engine takes 2^n steps on this text and would not finish."""
    assert matches(["a" * 50_000 + "b"], "(a+)+$").tolist() == [False]


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "*", r"(?<=a)b", r"(a)\1", "a{2000}", "(((a{100}){100}){100})"])
def test_invalid_regular_expressions_are_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="not a regular expression") as error:
        matches(["a"], pattern)
    assert "\n" not in str(error.value)


def test_an_endless_pattern_is_refused() -> None:
    with pytest.raises(UsageError, match="at most"):
        matches(["a"], "a" * (LONGEST_PATTERN + 1))
