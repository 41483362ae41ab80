"""``perfkit runs``: what lies in a folder, to pick a run from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import FOR_PEOPLE, emit, renderer, told, working
from perfkit_core.language.messages import mark, say
from perfkit_core.system.paths import as_path, readable

if TYPE_CHECKING:
    import pandas as pd

    from perfkit_core.model.columns import Column

_NOT_READ = mark("Trace files are listed unread; --read-files reads them for their figures.")


def _columns() -> tuple[Column, ...]:
    """The columns of the list; declared here, as declarations import what reads schemas."""
    from perfkit_core.model.columns import count, duration, size, text

    return (
        text("path", "Path"),
        text("format", "Format"),
        text("framework", "Framework"),
        text("devices", "Devices"),
        count("ranks", "Ranks"),
        count("cycles", "Cycles"),
        count("steps", "Steps"),
        duration("median_step_ns", "Median step"),
        count("events", "Events"),
        size("file_bytes", "File"),
        count("findings", "Findings"),
        text("recorded_utc", "Recorded UTC"),
        text("written_utc", "Written UTC"),
        text("recorded_or_written_utc", "Recorded or written UTC"),
        text("why_not_read", "Why not read"),
    )


@click.command(epilog="Example: perfkit runs runs/")
@click.argument("folder", metavar="DIR", type=options.LOCATION)
@click.option("--read-files", is_flag=True, help="Read trace files whole: their steps and findings stand nowhere else.")
@options.limit_option("without it all")
@options.format_option(f"{options.SUMMARY_FORMATS}, or html")
@options.output
@options.language
def runs(folder: Path, read_files: bool, limit: int | None, format_name: str | None, output: Path | None) -> None:
    """List the runs below a folder, the newest first.

    Shows every run folder, stored run and trace file with its head figures. Runs that cannot be read say why.
    """
    chosen = renderer(format_name, output)
    from perfkit_core.cli import output as overwriting
    from perfkit_core.report.model import Report, Section
    from perfkit_core.report.run_list import list_runs

    overwriting.check_below(output, folder)

    with working(f"looking through {folder}"):
        table = list_runs(folder, read_files=read_files)
    note = _note(table, read_files) if chosen.name in FOR_PEOPLE else ""
    if chosen.name in FOR_PEOPLE:
        table = _for_people(table, folder)
    elif limit:
        table = table.head(limit)
    place = readable(folder)
    none = say("no runs or trace files below {folder}", folder=place)
    section = Section("runs", say("Runs"), table, note, none, limit or None, columns=_columns())
    emit(Report(say("Runs in {folder}", folder=place), (), (section,), data={"source": place}), chosen, output)
    told(output)


def _note(table: pd.DataFrame, read_files: bool) -> str:
    sound = table[table["error"].isna()]
    if sound.empty:
        return ""
    sentences = [say("To look at one: {command}.", command=f"perfkit report {sound['path'].iloc[0]}")]
    both = sound["path"].iloc[:2].to_list()[::-1]
    if both[1:]:
        sentences.append(say("To compare two: {command}.", command=f"perfkit compare {' '.join(both)}"))
    if not read_files and bool(sound["events"].isna().any()):
        sentences.append(say(_NOT_READ))
    return " ".join(sentences)


def _for_people(table: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Paths from the folder on, dates to the second, no columns of nothing. Of files that are not read only the date at
    which they were written is known; of the others, when recording began."""
    table = table.copy()
    table["path"] = [str(as_path(path).relative_to(as_path(readable(folder)))) for path in table["path"]]
    table["recorded_at"] = table["recorded_at"].dt.strftime("%Y-%m-%d %H:%M:%S").astype(object)
    read = table["events"].notna()[table["recorded_at"].notna()]
    date = "recorded_utc" if read.all() else "recorded_or_written_utc" if read.any() else "written_utc"
    table = table.rename(columns={"recorded_at": date, "error": "why_not_read"})
    return table.dropna(axis="columns", how="all") if len(table) else table
