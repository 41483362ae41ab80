"""``perfkit plugins``: what is installed, and what does not work."""

from __future__ import annotations

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import emit, renderer
from perfkit_core.plugins.manager import Plugins, get_plugins


@click.command()
@options.format_option(options.SUMMARY_FORMATS)
def plugins(format_name: str | None) -> None:
    """List the plugins with what they add, and why a broken one does not work."""
    chosen = renderer(format_name)
    found = get_plugins()
    provided = _provided(found)
    import pandas as pd

    from perfkit_core.report.model import Report, Section

    table = pd.DataFrame(
        [(p.name, p.origin, ", ".join(p.hooks) or None, p.error or "ok") for p in found.listed.values()],
        columns=["name", "origin", "hooks", "status"],
        dtype=object,
    )
    names = pd.DataFrame(provided, columns=["what", "names"], dtype=object)
    sections = (Section("plugins", "Installed", table), Section("provided", "What they provide", names))
    emit(Report("perfkit plugins", (), sections), chosen, None)


def _provided(found: Plugins) -> list[tuple[str, str]]:
    """Names by kind. Calls every hook, so that a plugin that fails only then is found out too."""
    found.operator_names(None)
    kinds = {
        "sources": [source.name for source in found.sources()],
        "recorders": [recorder.framework for recorder in found.recorders()],
        "views": list(found.views()),
        "formats": list(found.renderers()),
        "exports": list(found.exporters()),
        "commands": [name for name, command in found.commands().items() if not command.hidden],
    }
    return [(kind, ", ".join(names)) for kind, names in kinds.items()]
