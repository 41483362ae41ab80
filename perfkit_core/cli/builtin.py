"""The built-in plugin: readers, views, rules, formats and commands of the core.

Modules are imported inside the functions, so that ``--help`` starts quickly.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from perfkit_core.plugins.contracts import Exporter, Renderer, Rule, Source, View
from perfkit_core.plugins.hookspecs import hookimpl
from perfkit_core.system.packages import later

if TYPE_CHECKING:
    import click

_COMMANDS: Final = ("record", "view", "summary", "report", "advise", "verify", "calibrate", "compare", "export", "runs",
                    "demo", "plugins")  # fmt: skip


@hookimpl
def perfkit_sources() -> Sequence[Source]:
    from perfkit_core.exporters import sniff_chrome
    from perfkit_core.readers import run_folder
    from perfkit_core.readers.nsys import source

    read_exported = later("perfkit_core.exporters.chrome_reader", "read")
    return [
        Source("run", "run folders that perfkit recorded", run_folder.sniff, run_folder.read, run_folder.peek),
        Source("perfkit-chrome", "timelines that perfkit exported (.json[.gz])", sniff_chrome, read_exported),
        Source("nsys", "SQLite exports of Nsight Systems (.sqlite)", source.sniff, source.read, stream=source.stream),
    ]


@hookimpl
def perfkit_analyses() -> Sequence[View]:
    from perfkit_core.replay import critical_path
    from perfkit_core.views import VIEWS

    return [*VIEWS, critical_path.VIEW]


@hookimpl
def perfkit_rules() -> Sequence[Rule[Any, Any]]:
    from perfkit_core.advice.rules import RULES

    return RULES


@hookimpl
def perfkit_renderers() -> Sequence[Renderer]:
    from perfkit_core.renderers import RENDERERS

    return RENDERERS


@hookimpl
def perfkit_exporters() -> Sequence[Exporter]:
    from perfkit_core.exporters import EXPORTERS

    return EXPORTERS


@hookimpl
def perfkit_commands() -> Sequence[click.Command]:
    """Return the commands in the order in which ``perfkit --help`` lists them."""
    return [getattr(importlib.import_module(f"perfkit_core.cli.{name}"), name) for name in _COMMANDS]
