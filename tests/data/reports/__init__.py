"""Small inputs that remake public reports of users about profiles. Each module describes one kind of report, and has a
table ``FILES``: the file names, and functions that return what to write."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from tests.data.reports.formats import Content

MODULES: Final = ("times", "lost_records")


def files() -> Mapping[str, Content]:
    """Return the content of each file by its name."""
    tables = (import_module(f"{__name__}.{module}").FILES for module in MODULES)
    return {name: content for table in tables for name, content in table.items()}
