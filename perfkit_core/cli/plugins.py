"""``perfkit plugins``: what is installed, and what does not work."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import emit, renderer
from perfkit_core.plugins.manager import Plugins, get_plugins

_PREFIX: Final = "perfkit_"
"""Every hook begins with it."""


@click.command()
@options.format_option(options.SUMMARY_FORMATS)
def plugins(format_name: str | None) -> None:
    """List the plugins with what they add, the views with how they can be split, and why a plugin does not work."""
    chosen = renderer(format_name)
    found = get_plugins()
    provided, views = list(_provided(found)), _views(found)
    import pandas as pd

    from perfkit_core.report.model import Report, Section

    listed = [
        (p.name, p.origin, ", ".join(hook.removeprefix(_PREFIX) for hook in p.hooks) or None, p.error or "ok")
        for p in found.listed.values()
    ]
    tables: dict[str, tuple[str, list[str], list[tuple[Any, ...]]]] = {
        "plugins": ("Installed", ["name", "origin", "hooks", "status"], listed),
        "views": ("Views: perfkit summary --view NAME or GROUP", ["name", "group", "title", "by", "native"], views),
        "provided": ("What else they provide", ["what", "name", "description"], provided),
    }
    sections = tuple(
        Section(name, title, pd.DataFrame(rows, columns=columns, dtype=object))
        for name, (title, columns, rows) in tables.items()
    )
    emit(Report("perfkit plugins", (), sections), chosen, None)


def _views(found: Plugins) -> list[tuple[Any, ...]]:
    return [
        (view.name, view.group, view.title, ", ".join(view.groupings) or None, "yes" if view.native else None)
        for view in found.views().values()
    ]


def _provided(found: Plugins) -> Iterator[tuple[Any, ...]]:
    """Kind, name and description. Calls every hook, so that a plugin that fails only then is found out too."""
    found.operator_names(None)
    found.remedies(None)
    for source in found.sources():
        yield "source", source.name, source.description
    for recorder in found.recorders():
        yield "recorder", recorder.framework, None
    for framework in found.step_timers():
        yield "step timer", framework, None
    for framework in found.calibrators():
        yield "calibration", framework, None
    for name in found.renderers():
        yield "format", name, None
    for exporter in found.exporters():
        yield "export", exporter, found.exporters()[exporter].description
    for rule in found.rules().values():
        yield "rule", rule.id, f"{rule.number}: {rule.title}"
    for name, command in found.commands().items():
        if not command.hidden:
            yield "command", name, command.get_short_help_str(80)
