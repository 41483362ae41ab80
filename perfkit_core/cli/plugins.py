"""``perfkit plugins``: list plugins, views and load errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from perfkit_core.cli import options, output
from perfkit_core.plugins.frameworks import Framework
from perfkit_core.plugins.manager import PARTS, get_plugins


@click.command()
@options.format_option(options.SUMMARY_FORMATS)
def plugins(format_name: str | None) -> None:
    """List the installed plugins, their errors, and all views.

    The output shows what each plugin adds, and the groupings of each view. The environment variable
    PERFKIT_DISABLE_PLUGINS=NAME,NAME disables these plugins, and PERFKIT_DISABLE_PLUGINS=all those of all other
    packages."""
    import pandas as pd

    from perfkit_core.trace.model.report_data import Report, Section

    chosen = output.renderer(format_name)
    installed = get_plugins()
    installed.call_all()
    frameworks = installed.frameworks()
    provided: list[tuple[Any, ...]] = [
        *(("source", source.name, source.description) for source in installed.sources()),
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
        (view.name, view.group, view.title, ", ".join(view.groupings) or None, "yes" if view.computed.native else None)
        for view in installed.views().values()
    ]
    listed = [
        (
            p.name,
            p.origin,
            ", ".join(hook.removeprefix("perfkit_") for hook in p.hooks) or None,
            "disabled" if p.disabled else p.error or "ok",
        )
        for p in installed.listed.values()
    ]
    tables: dict[str, tuple[str, list[str], list[tuple[Any, ...]]]] = {
        "plugins": ("Installed", ["name", "origin", "hooks", "status"], listed),
        "frameworks": ("Frameworks", ["part", *frameworks], list(_parts(frameworks.values()))),
        "views": ("Views: perfkit summary --view NAME or GROUP", ["name", "group", "title", "by", "native"], views),
        "provided": ("Other contributions of the plugins", ["what", "name", "description"], provided),
    }
    broken = tuple(f"{p.name}: {p.error}" for p in installed.listed.values() if p.error)
    sections = tuple(
        Section(name, title, pd.DataFrame(rows, columns=columns, dtype=object), lines=broken * (name == "plugins"))
        for name, (title, columns, rows) in tables.items()
    )
    output.emit(Report("perfkit plugins", (), sections), chosen, None)


def _parts(frameworks: Iterable[Framework]) -> Iterator[tuple[Any, ...]]:
    """Yield for each part of a framework its name, and what the plugins provide for each of the frameworks."""
    for part in PARTS:
        parts = [getattr(framework, part)() for framework in frameworks]
        cells = [len(provided) if isinstance(provided, tuple) else "yes" if provided else None for provided in parts]
        yield part.replace("_", " "), *cells
