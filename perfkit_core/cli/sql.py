"""``perfkit sql``: query the tables of a profile."""

from __future__ import annotations

import atexit
import gc
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from perfkit_core.base.system.processes import shell_path
from perfkit_core.cli import options
from perfkit_core.cli.output import FOR_PEOPLE, emit, reading, refuse_overwriting, renderer, say_written
from perfkit_core.errors import UsageError

if TYPE_CHECKING:
    from perfkit_core.readers.read_options import ReadOptions

_STDIN: Final = "-"


@click.command(
    epilog="Example: perfkit sql runs/baseline 'select name, sum(dur_ns) as total_ns from events group by name'"
)
@click.argument("arguments", metavar="SOURCE... [STATEMENT]", nargs=-1, required=True)
@options.limit_option("20; no limit in json and csv")
@options.format_option(f"{options.SUMMARY_FORMATS}, or html")
@options.output
@options.language
@options.reads
def sql(
    arguments: tuple[str, ...],
    limit: int | None,
    format_name: str | None,
    output: Path | None,
    read_options: ReadOptions,
) -> None:
    """Query the tables of a profile with SQL, in the dialect of duckdb.

    STATEMENT is one statement that reads, such as SELECT; - reads it from standard input. The tables are events,
    steps, operators, kernels, memory, advice, and all other views. Without a STATEMENT, the columns are listed.
    Statements cannot access files. A column has the unit of its name: alias the result of an expression, as in
    sum(dur_ns) as total_ns, to show it with a unit.

    This needs an extra: pip install "perfkit[sql]". A SOURCE is a run folder, a trace file or a folder of trace files.
    Several sources are read as the ranks of one profile; the column rank tells them apart."""
    from perfkit_core.integrations.sql import engine
    from perfkit_core.integrations.sql import statement as statements
    from perfkit_core.output.report.run_list import recognised
    from perfkit_core.output.report.summary import ROWS
    from perfkit_core.readers.load import check_exists

    atexit.register(gc.unfreeze)  # at exit, duckdb reports objects that no garbage collection can free

    chosen = renderer(format_name, output)
    texts, statement = split(arguments)
    sources = tuple(map(options.LOCATION, texts))
    refuse_overwriting(output, sources)
    if statement is None:
        for source in sources:  # a source without a profile may be meant as a statement
            check_exists(source)
            if not recognised(source):
                hint = f"to run a statement from a file: perfkit sql SOURCE - < {shell_path(source)}"
                raise UsageError(f"{source}: neither a profile nor a SQL statement", hint)
        report = statements.schema_report()
    else:
        for_people = chosen.name in FOR_PEOPLE
        most = (ROWS if limit is None else limit or None) if for_people else None
        with reading(sources):
            rows = None if for_people else limit or None
            report = statements.report(sources, statement, rows, most, read_options, engine.LimitedEngine)
        if for_people:
            (section,) = report.sections
            table = section.table.rename(columns={"depth": "Depth"})  # with a column depth, it would be a tree
            report = replace(report, sections=(replace(section, table=table),))
    emit(report, chosen, output)
    say_written(output)


def split(arguments: tuple[str, ...]) -> tuple[tuple[str, ...], str | None]:
    """Return the sources and the statement, which is the last argument if it has spaces and is no path. Raises
    UsageError if there is no source."""
    *sources, last = arguments
    if last == _STDIN:
        statement = sys.stdin.read()
    elif not last:
        raise UsageError("the statement is empty", "write one SELECT, or leave it out to list the tables")
    elif any(map(str.isspace, last)) and not options.LOCATION(last).exists():
        statement = last
    else:
        return arguments, None
    if not sources:
        raise UsageError("no SOURCE given", "give a run folder or a trace file before the statement")
    return tuple(sources), statement
