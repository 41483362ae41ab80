"""``perfkit runs``: what lies in a folder, to pick a run from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from perfkit_core.cli import options
from perfkit_core.cli.output import FOR_PEOPLE, emit, renderer
from perfkit_core.cli.progress import working
from perfkit_core.paths import as_path

if TYPE_CHECKING:
    import pandas as pd

_NOT_READ = "trace files are listed unread; --read-files reads them for their figures"


@click.command(epilog="Example: perfkit runs runs/")
@click.argument("folder", metavar="DIR", type=options.LOCATION)
@click.option("--read-files", is_flag=True, help="Read trace files whole: their steps and findings stand nowhere else.")
@options.limit_option("without it all")
@options.format_option(options.SUMMARY_FORMATS)
@options.output
def runs(folder: Path, read_files: bool, limit: int | None, format_name: str | None, output: Path | None) -> None:
    """List the runs below a folder, the newest first.

    Shows every run folder, stored run and trace file with its head figures. Runs that cannot be read say why.
    """
    chosen = renderer(format_name, output, without=("html",))
    from perfkit_core.report.model import Report, Section
    from perfkit_core.runs import list_runs

    with working(f"looking through {folder}"):
        table = list_runs(folder, read_files=read_files)
    note = _note(table, read_files) if chosen.name in FOR_PEOPLE else ""
    if chosen.name in FOR_PEOPLE:
        table = _for_people(table, folder)
    elif limit:
        table = table.head(limit)
    section = Section("runs", "Runs", table, note, f"no runs or trace files below {folder}", limit or None)
    emit(Report(f"Runs in {folder}", (), (section,), data={"source": str(folder)}), chosen, output)


def _note(table: pd.DataFrame, read_files: bool) -> str:
    sound = table[table["error"].isna()]
    if sound.empty:
        return ""
    how = f"perfkit report {sound['path'].iloc[0]}"
    unread = not read_files and bool(sound["events"].isna().any())
    both = sound["path"].iloc[:2].to_list()[::-1]
    more = f" To compare two: perfkit compare {' '.join(both)}." if both[1:] else ""
    return f"To look at one: {how}.{more}" + (f" {_NOT_READ[:1].upper()}{_NOT_READ[1:]}." if unread else "")


def _for_people(table: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Paths from the folder on, dates to the second, no columns of nothing. Of files that are not read only the date at
    which they were written is known."""
    table = table.copy()
    table["path"] = [str(as_path(path).relative_to(folder)) for path in table["path"]]
    table["recorded_at"] = table["recorded_at"].dt.strftime("%Y-%m-%d %H:%M:%S").astype(object)
    date = "written_utc" if table["events"].isna().any() else "recorded_utc"
    table = table.rename(columns={"recorded_at": date})
    return table.dropna(axis="columns", how="all") if len(table) else table
