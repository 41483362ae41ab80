"""``perfkit runs``: list the runs in a folder."""

from __future__ import annotations

from pathlib import Path

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import FOR_PEOPLE, emit, refuse_overwriting_below, renderer, say_written, working
from perfkit_core.language.messages import say
from perfkit_core.system.paths import as_path, readable


@click.command(epilog="Example: perfkit runs runs/")
@click.argument("folder", metavar="DIR", type=options.LOCATION)
@click.option("--read-files", is_flag=True, help="Read all trace files completely, to show their steps and "
              "data-quality warnings.")  # fmt: skip
@options.limit_option("all rows")
@options.format_option(f"{options.SUMMARY_FORMATS}, or html")
@options.output
@options.language
def runs(folder: Path, read_files: bool, limit: int | None, format_name: str | None, output: Path | None) -> None:
    """List the runs below a folder, newest first.

    The list shows the main figures of each run folder, Parquet file and trace file. If one cannot be read, the list
    shows the reason.
    """
    from perfkit_core.model.report_data import Report, Section
    from perfkit_core.report import run_list

    chosen = renderer(format_name, output)
    refuse_overwriting_below(output, folder)
    with working(f"searching {folder}"):
        table = run_list.list_runs(folder, read_files=read_files)
    note = []
    intact = table[table["error"].isna()]
    if chosen.name in FOR_PEOPLE and len(intact):
        note.append(say("To look at one run: {command}.", command=f"perfkit report {intact['path'].iloc[0]}"))
        if len(intact) > 1:
            older_and_newer = " ".join(intact["path"].iloc[[1, 0]])
            note.append(say("To compare two runs: {command}.", command=f"perfkit compare {older_and_newer}"))
        if not read_files and bool(intact["events"].isna().any()):
            note.append(say("Trace files were not read. Use --read-files to read them and show their figures."))
    if chosen.name in FOR_PEOPLE:
        table["path"] = [str(as_path(path).relative_to(as_path(readable(folder)))) for path in table["path"]]
        table["recorded_at"] = table["recorded_at"].dt.strftime("%Y-%m-%d %H:%M:%S").astype(object)
        # The date is the start of the recording. For an unread file, it is the modification time; the heading says so.
        read = table["events"].notna()[table["recorded_at"].notna()]
        date = "recorded_utc" if read.all() else "recorded_or_written_utc" if read.any() else "written_utc"
        table = table.rename(columns={"recorded_at": date, "error": "why_not_read"})
        table = table.dropna(axis="columns", how="all") if len(table) else table
    elif limit:
        table = table.head(limit)
    place = readable(folder)
    empty = say("no runs or trace files below {folder}", folder=place)
    section = Section("runs", say("Runs"), table, " ".join(note), empty, limit or None, columns=run_list.COLUMNS)
    emit(Report(say("Runs in {folder}", folder=place), (), (section,), data={"source": place}), chosen, output)
    say_written(output)
