"""Errors as texts of one line."""

from __future__ import annotations

import pytest

from perfkit_core.base.system import failures


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (OSError(28, "No space left on device"), "No space left on device"),
        (FileExistsError(17, "File exists", "runs/a"), "runs/a: File exists"),
        (OSError("odd"), "OSError: odd"),
        (ValueError(), "ValueError"),
    ],
)
def test_an_error_in_a_line(error: Exception, text: str) -> None:
    assert failures.one_line(error) == text
