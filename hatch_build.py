"""Compile the catalogues of translations when perfkit is built or installed, so that it runs without Babel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CatalogueHook(BuildHookInterface):  # type: ignore[misc]
    """Writes a ``.mo`` file next to each ``.po`` file, also for editable installs."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile all catalogues."""
        for source in Path(self.root, "perfkit_core", "language").glob("*.po"):
            with source.open("rb") as file:
                catalogue = read_po(file, locale=source.stem, charset="utf-8")
            with source.with_suffix(".mo").open("wb") as file:
                write_mo(file, catalogue)
