"""The hooks of perfkit. A plugin implements a hook with the decorator ``@perfkit_core.plugins.hookimpl``.

A plugin is a module (or object) to which an entry point of the group ``perfkit`` refers. Importing it must not import a
framework. perfkit also reads files on machines without any framework."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import pluggy

if TYPE_CHECKING:
    import click

    from perfkit_core.plugins import benches, checks, contracts

PROJECT: Final = "perfkit"
"""Name of the pluggy project. The entry-point group of plugins has the same name."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def perfkit_sources() -> Sequence[contracts.Source]:  # type: ignore[empty-body]
    """Readers of files or folders. A new trace format needs only this hook."""


@hookspec
def perfkit_recorders() -> Sequence[contracts.Recorder]:  # type: ignore[empty-body]
    """Live capture of a framework, for ``perfkit record`` and ``perfkit demo``."""


@hookspec
def perfkit_views() -> Sequence[contracts.View]:  # type: ignore[empty-body]
    """Views, for ``perfkit summary --view NAME`` and for the sections of reports."""


@hookspec
def perfkit_rules() -> Sequence[contracts.Rule[Any, Any]]:  # type: ignore[empty-body]
    """Rules of ``perfkit advise``. A rule detects a pattern that costs time, and says how to predict the saving."""


@hookspec
def perfkit_remedies() -> Mapping[str, Sequence[contracts.Remedy]]:  # type: ignore[empty-body]
    """A dictionary from framework to its remedies. A remedy is code that solves the problem that a rule detects. The
    keys are frameworks as in ``meta.framework`` of a trace, such as ``torch``.

    An adapter may keep its remedies in ``remedies.toml`` (:func:`perfkit_core.advice.remedies.read_remedies`)."""


@hookspec
def perfkit_step_timers() -> Mapping[str, Callable[[], contracts.StepTimer]]:  # type: ignore[empty-body]
    """A dictionary from framework to a function that starts and returns a step timer, for ``perfkit verify``. The keys
    are module names, such as ``torch``. perfkit calls the function when a script first imports the module."""


@hookspec
def perfkit_calibrations() -> Sequence[benches.Calibrator]:  # type: ignore[empty-body]
    """Measurements of the cost of tiny operators, launches and copies on a machine, for ``perfkit calibrate``."""


@hookspec
def perfkit_operator_names() -> contracts.OperatorNames:  # type: ignore[empty-body]
    """A dictionary from framework to a function. The function maps an operator name of this framework to the canonical
    name, or to None if the name is unknown. perfkit stores the canonical names in column ``op_name`` of every trace.

    ``perfkit_core/base/operators/families.toml`` lists the canonical names. The name of a gradient ends with
    ``_grad``. An operator that only runs other operators is named ``control_flow``, ``compiled_region`` or
    ``custom_function``.

    An adapter may keep its names in ``operator_names.toml``
    (:func:`perfkit_core.base.operators.names.native_names`)."""


@hookspec
def perfkit_operator_formulas() -> contracts.OperatorFormulas:  # type: ignore[empty-body]
    """A dictionary from framework to a function. The function maps an operator name of this framework to the formula of
    its FLOPs and bytes, with the roles of its recorded arguments, or to None
    (:mod:`perfkit_core.plugins.flops.registry`). ``WRAPPER`` stands for the formula of an operator that only calls
    others.

    An adapter may keep its formulas in ``operator_formulas.toml``
    (:func:`perfkit_core.plugins.flops.registry.read_formulas`).
    """


@hookspec
def perfkit_range_names() -> contracts.RangeNames:  # type: ignore[empty-body]
    """A dictionary from framework to a function. The function maps the text of an NVTX range to a
    :class:`perfkit_core.plugins.contracts.RangeMeaning`, or to None if the framework did not write this text.

    Readers of files from system profilers, such as Nsight Systems, use these functions. Ranges that no framework
    recognises become annotations. A file's framework is the one whose function recognises the most ranges."""


@hookspec
def perfkit_native_tables() -> Mapping[str, contracts.NativeTables]:  # type: ignore[empty-body]
    """A dictionary from framework to how its own profiler counts operators and labels, for ``--native``."""


@hookspec
def perfkit_compiled_code() -> Sequence[contracts.CompiledCode]:  # type: ignore[empty-body]
    """Readers of what a framework's compiler writes about its kernels: the operators, layers and lines of code that a
    kernel was made of. For the view ``compiled`` and for ``--compile-info``."""


@hookspec
def perfkit_checks() -> Sequence[checks.FrameworkChecks]:  # type: ignore[empty-body]
    """Checks of the installation of a framework, for ``perfkit doctor``: its packages, its devices, and a recording."""


@hookspec
def perfkit_renderers() -> Sequence[contracts.Renderer]:  # type: ignore[empty-body]
    """Output formats of reports, for ``--format NAME``."""


@hookspec
def perfkit_exporters() -> Sequence[contracts.Exporter]:  # type: ignore[empty-body]
    """Writers of files for other tools, for ``perfkit export --to NAME``."""


@hookspec
def perfkit_commands() -> Sequence[click.Command]:  # type: ignore[empty-body]
    """Subcommands of ``perfkit``."""
