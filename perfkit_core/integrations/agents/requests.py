"""The arguments of the tools. Their JSON schemas follow from these classes."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from perfkit_core.errors import UsageError, spelled_like

DEFAULT: Final = 40_000
"""Default maximum size of an answer. It contains its document twice, with about 5,000 tokens each time."""
LEAST: Final = 4_000
MOST: Final = 10_000_000

Names = Annotated[list[str], Meta(max_length=100)]
Count = Annotated[int, Meta(ge=1, le=10**9)]
Seconds = Annotated[float, Meta(gt=0, le=86_400, description="Time limit in seconds.")]


class Request(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Arguments that every tool has."""

    budget_bytes: Annotated[int, Meta(ge=LEAST, le=MOST, description="Maximum size of the answer in bytes.")] | None = (
        None
    )
    cursor: Annotated[
        str | None,
        Meta(description="Text of next of an earlier answer to the same arguments. The answer continues there."),
    ] = None


class Reading(Request, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """Arguments of tools that read one profile."""

    sources: Annotated[
        list[str],
        Meta(min_length=1, max_length=100_000, description="Run folder or trace file; several are the ranks of one "
             "profile. The tool runs lists them."),
    ]  # fmt: skip
    partial: Annotated[bool, Meta(description="Use the readable part of damaged files.")] = False
    step_on: Annotated[str | None, Meta(description="Take ranges of this name (or RE2 pattern) as steps.")] = None
    step_kind: Annotated[
        str | None, Meta(description="Of an inference server: prefill, decode, mixed, denoise or capture.")
    ] = None
    graph_capture: Annotated[Names, Meta(description="Recordings of graph captures.")] = []
    compile_info: Annotated[Names, Meta(description="What the framework's compiler wrote about its kernels.")] = []


class Runs(Request, kw_only=True, forbid_unknown_fields=True, frozen=True):
    folder: Annotated[str, Meta(description="Folder to search.")] = "."


class Summary(Reading, kw_only=True, forbid_unknown_fields=True, frozen=True):
    pass


class View(Reading, kw_only=True, forbid_unknown_fields=True, frozen=True):
    view: Annotated[str, Meta(description="Name of a view or of a group of views.")]
    by: Annotated[Names, Meta(description="Groupings, such as shape, module, step, rank, stack=5.")] = []
    steps: Annotated[list[int], Meta(max_length=100_000, description="Count only events in these steps.")] = []
    pattern: Annotated[str | None, Meta(description="RE2: count only events whose name matches.")] = None
    kind: Annotated[str | None, Meta(description="RE2: count only events whose kind or category matches.")] = None
    device: Annotated[str | None, Meta(description="RE2: count only events whose device matches.")] = None
    average: Annotated[bool, Meta(description="Divide sums by the number of steps.")] = False
    native: Annotated[bool, Meta(description="The numbers of the framework's own profiler, where they differ.")] = False
    sort: Annotated[str | None, Meta(description="Column to sort by, largest value first.")] = None
    show: Annotated[str | None, Meta(description="RE2: only rows with a matching text.")] = None
    columns: Annotated[Names, Meta(description="Only these columns, after those that identify a row.")] = []
    limit: Annotated[Count | None, Meta(description="Maximum number of rows per table.")] = None
    peaks: Annotated[str | None, Meta(description="TOML file with peak rates of devices.")] = None


class Advise(Reading, kw_only=True, forbid_unknown_fields=True, frozen=True):
    rules: Annotated[Names, Meta(description="Ids of rules to evaluate. Default: all.")] = []
    thresholds: Annotated[dict[str, float], Meta(description="Threshold of rules → value.")] = {}


class Explain(Advise, kw_only=True, forbid_unknown_fields=True, frozen=True):
    id: Annotated[str, Meta(description="Id of an advice, or its beginning.")]


class WhatIf(Reading, kw_only=True, forbid_unknown_fields=True, frozen=True):
    remove: Annotated[Names, Meta(description="RE2: events whose name matches do not take place.")] = []
    speed_up: Annotated[dict[str, float], Meta(description="RE2 → factor: matching events take 1/factor.")] = {}
    overlap_copies: Annotated[bool, Meta(description="Copies between host and device do not block the host.")] = False
    no_syncs: Annotated[bool, Meta(description="Calls that synchronise with a device take no time.")] = False
    rules: Annotated[
        dict[str, float],
        Meta(description="Rule → value, such as loader-workers: 4. Each is predicted alone, without the changes "
             "above."),
    ] = {}  # fmt: skip


class Compare(Request, kw_only=True, forbid_unknown_fields=True, frozen=True):
    base: Annotated[list[str], Meta(min_length=1, max_length=100, description="Captures of the first run.")]
    other: Annotated[list[str], Meta(min_length=1, max_length=100, description="Captures of the second run.")]
    tables: Annotated[Names, Meta(description="Names of tables of the comparison, or all. Default: main tables.")] = []
    fail_on: Annotated[Names, Meta(description="Limits, such as 'step_time > 3%'. See the table gate.")] = []
    per: Annotated[str | None, Meta(description="sample, token or flop: compare the time per unit of work.")] = None
    amounts: Annotated[list[Count], Meta(max_length=2, description="Units of work per step of base and of other.")] = []
    noise: Annotated[float, Meta(ge=0, le=1, description="Relative standard deviation between equal runs.")] | None = (
        None
    )
    partial: Annotated[bool, Meta(description="Use the readable part of damaged files.")] = False


class Sql(Reading, kw_only=True, forbid_unknown_fields=True, frozen=True):
    statement: Annotated[
        str,
        Meta(max_length=100_000, description="One statement that reads, in the dialect of duckdb. Tables: events, "
             "advice, and all views."),
    ]  # fmt: skip
    limit: Annotated[int, Meta(ge=1, le=10**6, description="Maximum number of rows; more_rows says if there are "
                               "more.")] = 1000  # fmt: skip
    seconds: Seconds = 60.0


class Record(Request, kw_only=True, forbid_unknown_fields=True, frozen=True):
    script: Annotated[str, Meta(description="Python script that trains or infers.")]
    arguments: Annotated[Names, Meta(description="Arguments of the script.")] = []
    output: Annotated[str | None, Meta(description="Run folder to write. Default: a new folder below runs.")] = None
    steps: Annotated[Count, Meta(description="Number of steps to record.")] = 20
    step_on: Annotated[str | None, Meta(description="Function or range that ends a step.")] = None
    shapes: Annotated[bool, Meta(description="Record shapes of operators.")] = False
    memory: Annotated[bool, Meta(description="Record memory events.")] = False
    stacks: Annotated[bool, Meta(description="Record Python stacks.")] = False
    flops: Annotated[bool, Meta(description="Record FLOPs of operators.")] = False
    seconds: Seconds = 600.0


class Program(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    script: Annotated[str, Meta(description="Python script.")]
    arguments: Annotated[Names, Meta(description="Arguments of the script.")] = []


class Verify(Request, kw_only=True, forbid_unknown_fields=True, frozen=True):
    base: Annotated[Program, Meta(description="The program without the change.")]
    change: Annotated[Program, Meta(description="The program with the change.")]
    metric: Annotated[str, Meta(description="step_time, or the name of a printed number.")] = "step_time"
    higher_is_better: bool = False
    rounds: Annotated[int, Meta(ge=3, le=1000, description="Number of rounds of two runs each.")] = 5
    warmup: Annotated[int, Meta(ge=0, le=1000, description="Runs that are not measured.")] = 1
    predicted_ns: Annotated[
        list[int], Meta(max_length=4, description="Step time now, and p10, p50, p90 of the predicted step time.")
    ] = []
    seconds: Seconds = 3600.0


def schema(request: type[Request]) -> dict[str, Any]:
    """Return the JSON schema of the arguments of a tool, without references."""
    document = msgspec.json.schema(request)
    definitions = document["$defs"]

    def resolved(value: Any) -> Any:
        if isinstance(value, dict) and "$ref" in value:
            inner = dict(definitions[value["$ref"].rpartition("/")[2]])
            inner.pop("title", None)
            return resolved(inner) | {key: item for key, item in value.items() if key != "$ref"}
        if isinstance(value, dict):
            return {key: resolved(item) for key, item in value.items()}
        return [resolved(item) for item in value] if isinstance(value, list) else value

    result: dict[str, Any] = resolved({"$ref": document["$ref"]})
    result.pop("description", None)
    return result


def parsed(request: type[Request], arguments: Any) -> Any:
    """Return the arguments of a tool. Raises UsageError, which names the wrong argument."""
    if isinstance(arguments.get("sources"), str):
        arguments = {**arguments, "sources": [arguments["sources"]]}
    fields = {field.name: field for field in msgspec.structs.fields(request)}
    for name in arguments:
        if name not in fields:
            raise UsageError(f"unknown argument {name!r}", spelled_like(name, fields))
    for name, field in fields.items():
        if field.required and name not in arguments:
            raise UsageError(f"the argument {name} is missing", _described(request, name))
    try:
        return msgspec.convert(arguments, request)
    except msgspec.ValidationError as error:
        what, _, argument = str(error).replace("`", "").partition(" - at $.")
        wrong = f"{argument}: {what[:1].lower()}{what[1:]}" if argument else what
        raise UsageError(f"the argument {wrong}", _described(request, re.split(r"[.\[]", argument)[0])) from None


def _described(request: type[Request], name: str) -> str:
    text: str = schema(request)["properties"].get(name, {}).get("description", "")
    return text[:1].lower() + text[1:]
