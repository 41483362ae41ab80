"""Regular expressions of users: found as written, refused with one line, never slow."""

from __future__ import annotations

import pytest

from perfkit_core.algorithms.arrays import LONGEST_PATTERN, matches
from perfkit_core.errors import UsageError


def test_finds_a_match_anywhere_and_none_in_null() -> None:
    assert matches(["aten::mm", "addmm", None, ""], "^aten|dm").tolist() == [True, True, False, False]
    assert matches(["Ünïcode", "日本"], "本|ï").tolist() == [True, True]
    assert matches([], "x").tolist() == []


def test_nested_repetition_takes_linear_time() -> None:
    """(a+)+$ takes a backtracking engine 2^n steps on this text: it would never end."""
    assert matches(["a" * 50_000 + "b"], "(a+)+$").tolist() == [False]


@pytest.mark.parametrize("pattern", ["(", "[z-a]", "*", r"(?<=a)b", r"(a)\1", "a{2000}", "(((a{100}){100}){100})"])
def test_what_is_no_regular_expression_is_refused(pattern: str) -> None:
    with pytest.raises(UsageError, match="not a regular expression") as error:
        matches(["a"], pattern)
    assert "\n" not in str(error.value)


def test_an_endless_pattern_is_refused() -> None:
    with pytest.raises(UsageError, match="at most"):
        matches(["a"], "a" * (LONGEST_PATTERN + 1))
