"""An invalid number on the command line is a one-line error with an example."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("summary", "x", "--limit", "abc"), "--limit 'abc' is not a whole number of 0 or more; example: --limit 5"),
        (("compare", "x", "y", "--limit", "-3"), "--limit '-3' is not a whole number of 0 or more; example: --limit 5"),
        (("record", "--steps", "0", "x.py"), "--steps '0' is not a whole number of 1 or more; example: --steps 5"),
        (("record", "--steps", "1.5", "x.py"), "--steps '1.5' is not a whole number of 1 or more; example: --steps 5"),
        (("report", "x", "--workers", "9" * 30),
         f"--workers '{'9' * 30}' is too large (at most 1,000,000,000); example: --workers 5"),
        (("verify", "--base", "x", "--change", "y", "--rounds", "a"),
         "--rounds 'a' is not a whole number of 0 or more; example: --rounds 5"),
    ],
)  # fmt: skip
def test_a_wrong_number_is_told_in_one_line(perfkit, arguments: tuple[str, ...], told: str) -> None:
    code, out, err = perfkit(*arguments)
    assert (code, out, err) == (2, "", f"perfkit: error: {told}\n")


def test_numbers_are_numbers(perfkit, run) -> None:
    code, out, _ = perfkit("summary", run, "--view", "operators", "--limit", " 1 ", "--format", "csv")
    assert code == 0
    assert len(out.splitlines()) == 2
