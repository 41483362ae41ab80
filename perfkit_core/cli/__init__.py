"""The command line: one verb a file, its help is its docstring. Each command is a thin call of the Python functions."""

from __future__ import annotations

from collections.abc import Sequence

import click


def builtin_commands() -> Sequence[click.Command]:
    """The commands of the core, in the order in which they are used."""
    from perfkit_core.cli import (
        advise,
        calibrate,
        compare,
        demo,
        export,
        plugins,
        record,
        report,
        runs,
        summary,
        verify,
    )

    return (
        record.record,
        summary.summary,
        report.report,
        advise.advise,
        verify.verify,
        calibrate.calibrate,
        compare.compare,
        export.export,
        runs.runs,
        demo.demo,
        demo.demo_run,
        plugins.plugins,
    )
