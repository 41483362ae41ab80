"""``perfkit doctor``: check the installation."""

from __future__ import annotations

import click

from perfkit_core.cli.output import echo, working

BROKEN = 1
"""Exit code if a check found a problem."""


@click.command(epilog="Example: perfkit doctor --json")
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def doctor(as_json: bool) -> int:
    """Check the installation, and say how to repair it.

    The checks cover packages and their versions, plugins, frameworks with a short recording, GPU drivers and the right
    to profile, compiled functions, folders, and the terminal. Please add the output to every issue. It contains no
    names of users or machines.

    Exit codes: 0 if perfkit and the installed frameworks work, even if something optional is missing; 1 if a check
    found a problem."""
    from perfkit_core.integrations.doctor import examine

    with working("checking packages, frameworks and devices") as say:
        checks = examine.without_names(examine.examine(lambda pending: say(f"checking {pending}")))
    echo(examine.document(checks) if as_json else examine.text(checks), nl=False)
    return BROKEN if examine.broken(checks) else 0
