"""The server of the Model Context Protocol over standard input and output. It works with the official SDK (the package
``mcp``), versions 1 and 2, which is imported here only."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any, Final

from perfkit_core.base.language.messages import speaking
from perfkit_core.base.system.failures import one_line
from perfkit_core.errors import PerfkitError, UsageError, spelled_like
from perfkit_core.integrations.agents import answers, requests
from perfkit_core.integrations.agents.session import Session, fingerprint
from perfkit_core.integrations.agents.tools import DATA, Tool, tools

NAME: Final = "perfkit"
_LONGEST_ERROR: Final = 1000
_OUTPUT: Final = {
    "type": "object",
    "properties": {
        "next": {"type": ["string", "null"], "description": "Cursor of the next part; null in the last part."},
        "items_left": {"type": "integer", "description": "Number of items in the next parts."},
        "shortened": {"type": "boolean", "description": "Whether an item was too large for the answer."},
        "quality": {"type": "array", "description": "Warnings on the recording."},
        "views": {"type": "object", "description": "Tables: name → rows."},
        "columns": {"type": "object", "description": "Headings and units: table → column."},
    },
    "required": ["next", "items_left", "shortened"],
}
"""Schema of all documents. Each tool adds further keys."""
INSTRUCTIONS: Final = (
    "perfkit says why a training or an inference of PyTorch or PaddlePaddle is slow, what would make it faster, and by "
    "how much. Order: runs (find recordings), summary, advise, explain; compare for two runs; view, sql and what_if "
    "for details. Times are integers in ns; columns has the unit of each column. Unknown values are null, never 0; "
    "cannot_tell and not_evaluable say what is missing and what to record to fill it. quality has warnings on the "
    "recording: report them. If next is not null, repeat the call with this cursor for the rest. " + DATA
)


def offered(session: Session) -> dict[str, Tool]:
    """Return the tools of a session by name. Tools that run code are listed only if the session allows it."""
    return {name: tool for name, tool in tools().items() if session.allow_run or not tool.runs_code}


def answer(
    session: Session, name: str, arguments: Mapping[str, Any] | None, default: int = requests.DEFAULT
) -> answers.Part:
    """Return the answer of a tool, or the part that a cursor names. Raises PerfkitError."""
    tool = tools().get(name)
    if tool is None:
        raise UsageError(f"unknown tool {name!r}", spelled_like(name, offered(session)))
    if tool.runs_code and not session.allow_run:
        raise UsageError(f"the tool {name} runs code, which this server does not allow", "start it with --allow-run")
    request = requests.parsed(tool.request, dict(arguments or {}))
    key_arguments = {key: value for key, value in (arguments or {}).items() if key not in ("cursor", "budget_bytes")}
    with speaking("en"):
        if tool.runs_code:
            key = answers.digest(name, key_arguments)
            content = session.ran(key, request.cursor is not None, lambda: tool.run(session, request))
        else:
            key = answers.digest(name, key_arguments, fingerprint(session.files(request)))
            content = session.answer(key, lambda: tool.run(session, request))
        first = answers.offset(request.cursor, key)
        return answers.part(content, request.budget_bytes or default, key, first)


def result(session: Session, name: str, arguments: Mapping[str, Any] | None, default: int) -> dict[str, Any]:
    """Return the result of a tool call as the protocol defines it. An error becomes a result with ``isError``."""
    try:
        part = answer(session, name, arguments, default)
    except PerfkitError as error:
        return _error(str(error))
    except Exception as error:  # the server goes on, whatever a profile contains
        if os.environ.get("PERFKIT_DEBUG") == "1":
            traceback.print_exc()
        return _error(f"unexpected {one_line(error)}; please report it (PERFKIT_DEBUG=1 prints the traceback)")
    texts = [{"type": "text", "text": text} for text in (part.text, part.json)]
    return {"content": texts, "structuredContent": part.document, "isError": False}


def _error(text: str) -> dict[str, Any]:
    shown = " ".join(answers.printable(text).split())
    shown = shown if len(shown) <= _LONGEST_ERROR else f"{shown[:_LONGEST_ERROR]}…"
    return {"content": [{"type": "text", "text": shown}], "isError": True}


def listed(session: Session) -> list[dict[str, Any]]:
    """Return the tools as the protocol lists them."""
    return [
        {
            "name": tool.name, "title": tool.title, "description": tool.description,
            "inputSchema": requests.schema(tool.request), "outputSchema": _OUTPUT,
            "annotations": {
                "readOnlyHint": not tool.runs_code, "destructiveHint": tool.runs_code, "openWorldHint": tool.runs_code,
                "idempotentHint": not tool.runs_code,
            },
        }
        for tool in offered(session).values()
    ]  # fmt: skip


def serve(session: Session, default: int) -> None:
    """Answer the calls of one client until it closes standard input. Raises UsageError if the SDK is missing."""
    try:
        import anyio
        import anyio.lowlevel
        from mcp.server.stdio import stdio_server
    except ImportError as error:
        raise UsageError(f"agents require the package mcp ({error})", 'run pip install "perfkit[mcp]"') from None
    working = anyio.Lock()  # profiles are read by one call at a time

    async def cancelling() -> None:
        try:
            await anyio.sleep_forever()
        finally:
            session.cancelled.set()

    async def called(name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
        async with working, anyio.create_task_group() as tasks:
            session.cancelled.clear()
            tasks.start_soon(cancelling)
            # if the call is cancelled, this waits until the thread has ended
            response: dict[str, Any] = await anyio.to_thread.run_sync(result, session, name, arguments, default)
            tasks.cancel_scope.cancel()
        await anyio.lowlevel.checkpoint_if_cancelled()  # a cancelled call has no answer
        return response

    async def serving() -> None:
        server = _server(session, called)
        async with stdio_server() as (receiving, sending):
            await server.run(receiving, sending, server.create_initialization_options())

    print(f"perfkit: serving {session.roots.shown}", file=sys.stderr)
    # version 1 of the SDK closes the standard output that it finds
    with open(1, "w", encoding="utf-8", closefd=False) as output, contextlib.redirect_stdout(output):
        anyio.run(serving)


def _server(session: Session, called: Callable[[str, Any], Awaitable[dict[str, Any]]]) -> Any:
    """Return the server of the SDK. ``called(name, arguments)`` returns the result of a tool."""
    from mcp import types
    from mcp.server.lowlevel import Server

    about = {"version": version(NAME), "instructions": INSTRUCTIONS}

    async def list_tools() -> types.ListToolsResult:
        return types.ListToolsResult.model_validate({"tools": listed(session)})

    async def call_tool(params: Any) -> types.CallToolResult:
        return types.CallToolResult.model_validate(await called(params.name, params.arguments))

    if not hasattr(Server, "call_tool"):  # version 2 of the SDK
        return Server(
            NAME, on_list_tools=lambda context, params: list_tools(),
            on_call_tool=lambda context, params: call_tool(params), **about,
        )  # fmt: skip
    server: Any = Server(NAME, **about)

    async def first(request: Any) -> Any:
        return types.ServerResult(await list_tools())

    async def second(request: Any) -> Any:
        return types.ServerResult(await call_tool(request.params))

    server.request_handlers[types.ListToolsRequest] = first
    server.request_handlers[types.CallToolRequest] = second
    return server
