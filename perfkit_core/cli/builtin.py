"""What the core registers, through the same hooks as everyone else. Imports stay inside: ``--help`` must be quick."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfkit_core.plugins.contracts import Exporter, Renderer, Rule, Source, View
from perfkit_core.plugins.hookspecs import hookimpl
from perfkit_core.system.packages import later

if TYPE_CHECKING:
    import click


@hookimpl
def perfkit_sources() -> Sequence[Source]:
    from perfkit_core.exporters import chrome_mark
    from perfkit_core.readers import run_folder

    read_own = later("perfkit_core.exporters.chrome_reader", "read")
    return [
        Source("run", "run folders that perfkit's handlers write", run_folder.sniff, run_folder.read, run_folder.peek),
        Source("perfkit-chrome", "timelines that perfkit exported (.json[.gz])", chrome_mark.sniff, read_own),
    ]


@hookimpl
def perfkit_analyses() -> Sequence[View]:
    from perfkit_core.views import VIEWS

    return VIEWS


@hookimpl
def perfkit_rules() -> Sequence[Rule]:
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
    from perfkit_core.cli import builtin_commands

    return builtin_commands()
