"""Baselines: what the tests of a file ran, in a JSON file that people review with the change.

The file ``perf_baselines/test_model.json`` is next to ``test_model.py``. It has the counts of each test, by the kind of
device, and the calls of each operator and kernel, so that a difference shows what was added. It contains no times,
because times depend on the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec
import pandas as pd

from perfkit_core.base.language import units
from perfkit_core.base.system import paths
from perfkit_core.base.system.outside_text import decode_json, read_file
from perfkit_core.compare.gate.conditions import CANNOT_TELL
from perfkit_core.compare.report import COLUMNS
from perfkit_core.errors import PerfkitError, SourceError, UsageError
from perfkit_core.integrations.pytest_plugin import budget
from perfkit_core.integrations.pytest_plugin.section import COUNTS, Section
from perfkit_core.trace.model import columns
from perfkit_core.trace.model.report_data import Section as Table

FOLDER: Final = "perf_baselines"
FORMAT: Final = 1
BETTER: Final = "below the baseline"
_ROWS: Final = 10
_UPDATE: Final = "run pytest --perf-update, and commit the file"


class Baseline(msgspec.Struct, forbid_unknown_fields=True):
    """What a section ran on one kind of device. A count that could not be known is null."""

    recorded_with: str
    counts: dict[str, int | None]
    operators: dict[str, int]
    kernels: dict[str, int]


class Baselines(msgspec.Struct, forbid_unknown_fields=True):
    """The content of a file: name of the test (and label of the section) → kind of device → baseline."""

    format: int
    tests: dict[str, dict[str, Baseline]]


def file_of(test_file: Path) -> Path:
    path = test_file.parent / FOLDER / f"{test_file.stem}.json"
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def of_section(section: Section) -> Baseline:
    return Baseline(section.version, dict(section.counts), section.operators, section.kernels)


def read(path: Path) -> Baselines:
    """Return the baselines of a file, or none if there is no file. Raises SourceError."""
    try:
        content = decode_json(read_file(path), Baselines)
    except FileNotFoundError:
        return Baselines(FORMAT, {})
    except (OSError, ValueError) as error:
        raise SourceError(f"{path}: not a file of baselines ({error})", "delete it, and " + _UPDATE) from None
    if content.format != FORMAT:
        raise SourceError(f"{path}: format {content.format}, but this perfkit reads format {FORMAT}", "update perfkit")
    return content


def store(reports: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Store the new baselines of all tests. ``reports`` are results of tests as plain data. Return one line for each
    file that was written, and one for each that could not be written."""
    updates = dict[Path, dict[str, dict[str, Baseline]]]()
    for report in reports:
        if report["baselines"]:
            changed = msgspec.convert(report["baselines"], dict[str, dict[str, Baseline]])
            updates.setdefault(Path(report["file"]), {}).update(changed)
    stored, errors = [], []
    for path, changed in sorted(updates.items()):
        try:
            update(path, changed)
            stored.append(f"stored {units.counted(len(changed), 'baseline')} in {path}")
        except PerfkitError as error:
            errors.append(f"the baselines are not stored: {error}")
    return stored, errors


def update(path: Path, changed: Mapping[str, Mapping[str, Baseline]]) -> None:
    """Replace the baselines of some tests. Raises SourceError, and UsageError if the file cannot be written."""
    content = read(path)
    for name, places in changed.items():
        content.tests[name] = {**content.tests.get(name, {}), **places}
    text = msgspec.json.format(msgspec.json.encode(content, order="sorted"), indent=2)
    try:
        with paths.replacing(path) as file:
            file.write_bytes(text + b"\n")
    except OSError as error:
        problem = f"{path}: cannot be written ({error.strerror or error})"
        raise UsageError(problem, "make its folder writable") from None


def results(section: Section, name: str, path: Path) -> Iterator[budget.Result]:
    """Yield the result of each count whose limit is that of the baseline. Raises UsageError without a baseline."""
    stored = read(path).tests.get(name)
    if stored is None:
        raise UsageError(f"no limit, and no baseline in {path}", "give a limit, or " + _UPDATE)
    baseline = stored.get(section.device_kinds)
    if baseline is None:
        note = f"the baseline is of {', '.join(stored)}, not of {section.device_kinds}"
        yield budget.Result("baseline", "-", "-", CANNOT_TELL, note)
        return
    note = "" if baseline.recorded_with == section.version else f"baseline of {baseline.recorded_with}"
    for count in COUNTS:
        limit, now = baseline.counts.get(count), section.counts[count]
        if limit is not None and now is not None:
            result = budget.of_count(section, count, limit, note)
            yield replace(result, result=BETTER) if now < limit else result


def differences(section: Section, name: str, path: Path) -> Table | None:
    """Return the operators and kernels whose number of calls differs from the baseline, or None without a baseline."""
    baseline = read(path).tests.get(name, {}).get(section.device_kinds)
    if baseline is None:
        return None
    rows = []
    for before, now in ((baseline.operators, section.operators), (baseline.kernels, section.kernels)):
        rows += [[operation, before.get(operation, 0), now.get(operation, 0)] for operation in sorted({*before, *now})]
    table = pd.DataFrame(rows, columns=["name", "base_calls", "other_calls"])
    table["difference_calls"] = table["other_calls"] - table["base_calls"]
    table = table[table["difference_calls"] != 0]
    order = table["difference_calls"].abs().sort_values(ascending=False, kind="stable").index
    declared = (*COLUMNS, columns.count("difference_calls", "Difference", quantity=""))
    title = f"Calls that differ from the baseline ({baseline.recorded_with}, {section.device_kinds})"
    return Table("operators", title, table.loc[order].reset_index(drop=True), limit=_ROWS, columns=declared)
