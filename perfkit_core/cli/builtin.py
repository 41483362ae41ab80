"""The built-in plugin: readers, views, rules, formats and commands of the core.

Modules are imported inside the functions, so that ``--help`` starts quickly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from perfkit_core.base.system.packages import later
from perfkit_core.plugins.hookspecs import hookimpl

if TYPE_CHECKING:
    import click

    from perfkit_core.plugins.contracts import Exporter, Renderer, Rule, Source, View

_COMMANDS: Final = {
    "record": "Run SCRIPT with ARGS and record it.",
    "capture": "Record some steps of a training that runs, on all its ranks.",
    "view": "Make the page of a profile and open it in the browser.",
    "summary": "Show tables of a profile.",
    "report": "Write one self-contained HTML page that works offline.",
    "advise": "Suggest changes, and predict how much time each change saves.",
    "verify": "Measure how much a change improves a program.",
    "calibrate": "Measure costs of this machine, or the noise of equal runs.",
    "compare": "Compare runs with the first run, or with --baseline.",
    "sql": "Query the tables of a profile with SQL, in the dialect of duckdb.",
    "export": "Write a file for another tool: a timeline, stacks or events.",
    "scrub": "Write a copy of a profile for other people.",
    "log": "Log the head figures, tables and the page of a profile with MLflow, TensorBoard or Weights & Biases.",
    "runs": "List the runs below a folder, newest first.",
    "demo": "Find and fix faults of a slow training, and measure the gain.",
    "mcp": "Answer the questions of agents over the Model Context Protocol.",
    "plugins": "List the installed plugins, their errors, and all views.",
    "doctor": "Check the installation, and say how to repair it.",
}
"""The commands in the order of ``perfkit --help``, with the first sentences of their docstrings."""


@hookimpl
def perfkit_sources() -> Sequence[Source]:
    from perfkit_core.exporters import sniff_chrome
    from perfkit_core.plugins.contracts import Source
    from perfkit_core.readers import run_folder
    from perfkit_core.readers.nsys import source

    read_exported = later("perfkit_core.exporters.chrome_reader", "read")
    return [
        Source("run", "run folders that perfkit recorded", run_folder.sniff, run_folder.read, run_folder.peek),
        Source("perfkit-chrome", "timelines that perfkit exported (.json[.gz])", sniff_chrome, read_exported),
        Source("nsys", "SQLite exports of Nsight Systems (.sqlite)", source.sniff, source.read, stream=source.stream),
    ]


@hookimpl
def perfkit_views() -> Sequence[View]:
    from perfkit_core.causes import account_view
    from perfkit_core.replay import bounds, critical_path
    from perfkit_core.views.builtin import VIEWS

    return [*VIEWS, account_view.VIEW, critical_path.VIEW, bounds.VIEW]


@hookimpl
def perfkit_rules() -> Sequence[Rule[Any, Any]]:
    from perfkit_core.advice.rules import RULES

    return RULES


@hookimpl
def perfkit_renderers() -> Sequence[Renderer]:
    from perfkit_core.output.renderers import RENDERERS

    return RENDERERS


@hookimpl
def perfkit_exporters() -> Sequence[Exporter]:
    from perfkit_core.exporters import EXPORTERS

    return EXPORTERS


@hookimpl
def perfkit_commands() -> Sequence[click.Command]:
    from perfkit_core.cli.main import DeferredCommand

    return [DeferredCommand(name, short_help) for name, short_help in _COMMANDS.items()]
