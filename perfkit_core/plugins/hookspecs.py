"""The hooks of perfkit. Implement one with ``@perfkit_core.plugins.hookimpl``.

A plugin is a module (or object) named by an entry point of the group ``perfkit``. Importing it must not import a
framework, as perfkit reads files on machines without one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pluggy

if TYPE_CHECKING:
    import click

    from perfkit_core.plugins import contracts

PROJECT: Final = "perfkit"
"""Name of the pluggy project, and the entry-point group of plugins."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def perfkit_sources() -> Sequence[contracts.Source]:  # type: ignore[empty-body]
    """Readers of files or folders. A new trace format needs no other hook."""


@hookspec
def perfkit_recorders() -> Sequence[contracts.Recorder]:  # type: ignore[empty-body]
    """Live capture of a framework, for ``perfkit record`` and ``perfkit demo``."""


@hookspec
def perfkit_analyses() -> Sequence[contracts.View]:  # type: ignore[empty-body]
    """Views: ``perfkit summary --view NAME``, and the sections of reports."""


@hookspec
def perfkit_rules() -> Sequence[contracts.Rule]:  # type: ignore[empty-body]
    """Rules of ``perfkit advise``: patterns that cost time, with the transform of the recording that removes them."""


@hookspec
def perfkit_remedies() -> Mapping[str, Sequence[contracts.Remedy]]:  # type: ignore[empty-body]
    """Code to write against the pattern of a rule, by framework (``meta.framework`` of a trace).

    An adapter may keep it in a file ``remedies.toml``, read by :func:`perfkit_core.advice.remedies.read_remedies`.
    """


@hookspec
def perfkit_step_timers() -> Mapping[str, Callable[[], contracts.StepTimer]]:  # type: ignore[empty-body]
    """Step timers for ``perfkit verify``, by the framework's module, whose import starts them. They time an unmodified
    training without a profiler; ``StepTimer.updated`` is called after each update of the first optimizer."""


@hookspec
def perfkit_calibrations() -> Sequence[contracts.Calibrator]:  # type: ignore[empty-body]
    """Measurements of what tiny operators, launches and copies cost on a machine, for ``perfkit calibrate``."""


@hookspec
def perfkit_operator_names() -> contracts.OperatorNames:  # type: ignore[empty-body]
    """Native operator names → canonical names, by framework. Fills the ``op_name`` column of every trace.

    Canonical names are listed in ``perfkit_core/operators/families.toml``; a gradient's name ends with ``_grad``.
    Return None for an unknown name. Operators that only run others are ``control_flow``, ``compiled_region`` or
    ``custom_function``; the operators inside have their own names. An adapter may keep its names in a file
    ``operator_names.toml``, read by :func:`perfkit_core.operators.names.native_names`.
    """


@hookspec
def perfkit_renderers() -> Sequence[contracts.Renderer]:  # type: ignore[empty-body]
    """Output formats for reports: ``--format NAME``."""


@hookspec
def perfkit_exporters() -> Sequence[contracts.Exporter]:  # type: ignore[empty-body]
    """Writers of files for other tools: ``perfkit export --to NAME``."""


@hookspec
def perfkit_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Subcommands of ``perfkit``."""
