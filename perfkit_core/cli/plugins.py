"""``perfkit plugins``: what is installed, and what does not work."""

from __future__ import annotations

from typing import Any, Final

import click

from perfkit_core.cli import options, output
from perfkit_core.plugins.manager import get_plugins

_PREFIX: Final = "perfkit_"
"""The beginning of the name of every hook."""


@click.command()
@options.format_option(options.SUMMARY_FORMATS)
def plugins(format_name: str | None) -> None:
    """List plugins and views, and why a plugin does not load.

    Lists the plugins with what they add, and the views with their groupings.
    """
    import pandas as pd

    from perfkit_core.report.model import Report, Section

    chosen = output.renderer(format_name)
    installed = get_plugins()
    # calls every hook, so that a plugin that fails only then is listed with its error
    installed.operator_names(None)
    installed.remedies(None)
    provided: list[tuple[Any, ...]] = [
        *(("source", source.name, source.description) for source in installed.sources()),
        *(("recorder", recorder.framework, None) for recorder in installed.recorders()),
        *(("step timer", framework, None) for framework in installed.step_timers()),
        *(("calibration", framework, None) for framework in installed.calibrators()),
        *(("format", name, None) for name in installed.renderers()),
        *(("export", name, exporter.description) for name, exporter in installed.exporters().items()),
        *(("rule", rule.id, f"{rule.number}: {rule.title}") for rule in installed.rules().values()),
        *(
            ("command", name, command.get_short_help_str(80))
            for name, command in installed.commands().items()
            if not command.hidden
        ),
    ]
    views = [
        (view.name, view.group, view.title, ", ".join(view.groupings) or None, "yes" if view.native else None)
        for view in installed.views().values()
    ]
    listed = [
        (p.name, p.origin, ", ".join(hook.removeprefix(_PREFIX) for hook in p.hooks) or None, p.error or "ok")
        for p in installed.listed.values()
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
    output.emit(Report("perfkit plugins", (), sections), chosen, None)
