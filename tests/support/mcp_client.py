"""A client of the official SDK that talks to ``perfkit mcp`` in a new process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

Calls = Sequence[tuple[str, Mapping[str, Any]]]


def results(calls: Calls, folder: Path, *options: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the answer to tools/list and the results of the calls, as JSON of the protocol. The server runs in
    ``folder`` and does not know what was measured on this machine."""
    environment = dict(os.environ) | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "XDG_CACHE_HOME": str(folder / ".cache"), "XDG_STATE_HOME": str(folder / ".state"),
    }  # fmt: skip
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "perfkit", "mcp", *options], env=environment, cwd=str(folder)
    )
    made: list[dict[str, Any]] = []
    listed: dict[str, Any] = {}

    async def ask() -> None:
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            listed.update(_json(await session.list_tools()))
            for tool, arguments in calls:
                made.append(_json(await session.call_tool(tool, dict(arguments))))

    anyio.run(ask)
    return listed, made


def _json(result: Any) -> dict[str, Any]:
    content: dict[str, Any] = result.model_dump(mode="json", by_alias=True)
    return content
