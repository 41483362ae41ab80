"""``perfkit mcp``: answer the questions of agents."""

from __future__ import annotations

import click

from perfkit_core.cli import options
from perfkit_core.integrations.agents.requests import DEFAULT, LEAST, MOST


@click.command(epilog="Example: perfkit mcp --root runs")
@click.option("--root", "roots", multiple=True, metavar="DIR", help="Folder, or address of a folder in a store, that "
              "agents may read. Repeat the option for several folders.  [default: the current folder]")  # fmt: skip
@click.option("--budget", type=options.WholeNumber(LEAST, MOST), default=DEFAULT, show_default=True,
              metavar="BYTES", help=f"Maximum size of an answer, from {LEAST:,} to {MOST:,}, unless a "
              "call asks for another.")  # fmt: skip
@click.option("--allow-run", is_flag=True, help="Offer the tools record and verify, which run Python scripts below "
              "the roots.")  # fmt: skip
def mcp(roots: tuple[str, ...], budget: int, allow_run: bool) -> None:
    """Answer the questions of agents over the Model Context Protocol.

    The command serves one client over standard input and output; the client starts it. Its tools read profiles: runs,
    summary, view, advise, explain, compare, what_if and sql. Files outside the roots are refused. docs/agents.md says
    how to configure a client.

    This needs an extra: pip install "perfkit[mcp]"."""
    from perfkit_core.integrations.agents.server import serve
    from perfkit_core.integrations.agents.session import Roots, Session

    serve(Session(Roots(roots or (".",)), allow_run), budget)
