"""The hooks of perfkit. A plugin implements a hook with the decorator ``@perfkit_core.plugins.hookimpl``.

A plugin is a module (or object) to which an entry point of the group ``perfkit`` refers. Importing it must not import a
framework. perfkit also reads files on machines without any framework."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pluggy

if TYPE_CHECKING:
    import click

    from perfkit_core.plugins import contracts, frameworks

PROJECT: Final = "perfkit"
"""Name of the pluggy project. The entry-point group of plugins has the same name."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def perfkit_sources() -> Sequence[contracts.Source]:  # type: ignore[empty-body]
    """Readers of files or folders. A new trace format needs only this hook."""


@hookspec
def perfkit_frameworks() -> Sequence[frameworks.Framework]:  # type: ignore[empty-body]
    """Records of frameworks. A record has everything that an adapter provides for a framework: live capture, names of
    operators, remedies, and more. Records of the same framework are merged."""


@hookspec
def perfkit_views() -> Sequence[contracts.View]:  # type: ignore[empty-body]
    """Views, for ``perfkit summary --view NAME`` and for the sections of reports."""


@hookspec
def perfkit_rules() -> Sequence[contracts.Rule[Any, Any]]:  # type: ignore[empty-body]
    """Rules of ``perfkit advise``. A rule detects a pattern that costs time, and says how to predict the saving."""


@hookspec
def perfkit_renderers() -> Sequence[contracts.Renderer]:  # type: ignore[empty-body]
    """Output formats of reports, for ``--format NAME``."""


@hookspec
def perfkit_exporters() -> Sequence[contracts.Exporter]:  # type: ignore[empty-body]
    """Writers of files for other tools, for ``perfkit export --to NAME``."""


@hookspec
def perfkit_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Subcommands of ``perfkit``."""
