"""Commands whose modules are imported when the commands are used, so that ``perfkit --help`` starts quickly."""

from __future__ import annotations

from importlib import import_module
from typing import cast

import click


class DeferredCommand(click.Command):
    """The name and the short help of a command. The module ``perfkit_core.cli.NAME`` has the command itself."""

    def __init__(self, name: str, short_help: str) -> None:
        super().__init__(name, short_help=short_help)

    def load(self) -> click.Command:
        """Import and return the command."""
        return cast("click.Command", getattr(import_module(f"perfkit_core.cli.{self.name}"), str(self.name)))
