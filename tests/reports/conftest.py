"""Fixtures for tests of reports of users: the inputs of ``tests.data.reports``, and what commands say about them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Perfkit, perfkit
from tests.data.reports import files
from tests.data.reports.formats import write

__all__ = ["perfkit"]
NUMBER = r"(?<![\d.,]){}(?![\d]|[.,]\d)"
CLEAN_CODES = frozenset(
    {"rounded-clock", "rounded-clocks", "rebuilt-parents", "no-clock-origin", "no-phases", "forward-inferred",
     "no-device-events", "no-steps", "chosen-steps", "graph-kernels-without-operators"}
)  # fmt: skip
"""Warnings about complete small inputs, which say nothing about a fault."""


@dataclass(frozen=True)
class Reported:
    """What perfkit says about a file."""

    path: Path
    perfkit: Perfkit

    def rows(self, view: str, *options: str) -> list[dict[str, Any]]:
        """Return the rows of a view by the command, as JSON."""
        return list(self._summary(view, *options)["views"][view])

    def row(self, view: str, **values: Any) -> dict[str, Any]:
        """Return the one row of a view with these values."""
        rows = [row for row in self.rows(view) if values.items() <= row.items()]
        assert len(rows) == 1, f"{len(rows)} rows of {view} have {values}"
        return rows[0]

    def _summary(self, view: str, *options: str) -> Any:
        if self.path.suffix == ".sqlite":  # Nsight Systems records steps as ranges of any name
            options = ("--step-on", r"step \d+", *options)
        code, out, err = self.perfkit("summary", self.path, "--view", view, "--format", "json", *options)
        assert (code, err) == (0, ""), err
        return json.loads(out)

    @cached_property
    def all_findings(self) -> list[str]:
        """The data-quality warnings, as texts with their codes."""
        return [f"{one['code']}: {one['message']}" for one in self._summary("overview")["quality"]]

    @property
    def findings(self) -> list[str]:
        """The data-quality warnings that a complete input does not have."""
        return [text for text in self.all_findings if text.partition(":")[0] not in CLEAN_CODES]

    def finds(self, count: int | None, *words: str) -> bool:
        """Return whether a data-quality warning has this number and all words (regular expressions)."""
        patterns = [*words, *([] if count is None else [NUMBER.format(count)])]
        return any(all(re.search(word, text, re.IGNORECASE) for word in patterns) for text in self.findings)


@pytest.fixture(scope="session")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which ``reported`` writes inputs."""
    return tmp_path_factory.mktemp("reports")


@pytest.fixture
def reported(inputs: Path, perfkit: Perfkit) -> Callable[[str], Reported]:
    """Return a function that returns what perfkit says about an input, or about a file with another path:
    ``reported("r41_head_lost.json")``."""

    def call(name: str) -> Reported:
        if not (inputs / name).exists():
            for file, content in files().items():
                if file == name or file.startswith(f"{name}/"):
                    write(inputs / file, content)
        return Reported(inputs / name, perfkit)

    return call
