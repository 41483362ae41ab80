"""The benchmarks run and print their measurements. The tests do not check times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import all_views, command, ingest, kept, markdown
from benchmarks.inputs import SMALL, make
from benchmarks.machine import machine
from benchmarks.readers import READERS, reader
from benchmarks.results import Check, Section, Table, at_least, at_most
from benchmarks.rounds import Result, run, take_turns
from perfkit_core.plugins.manager import get_plugins

READ = (ingest.MEMORY, ingest.STORED, "json + pandas")


def test_readers_take_turns_on_a_file(bench_dir: Path) -> None:
    file = make(SMALL, bench_dir / "small.json", 1)
    said: list[str] = []
    found = ingest.section([file], [reader(name) for name in READ], 1, said.append)
    assert [line.split(": ")[1] for line in said] == list(READ)
    table = found.tables[0]
    assert [row[0] for row in table.rows] == list(READ)
    rows = {row[0]: row[table.columns.index("rows")] for row in table.rows}
    assert rows["json + pandas"] == f"{len(json.loads(file.read_bytes())['traceEvents']):,}"
    assert rows[ingest.MEMORY] == rows[ingest.STORED] != "0"
    assert {check.holds for check in found.checks if "HolisticTraceAnalysis" in check.what} == {None}


def test_missing_programs_are_listed_with_the_reason() -> None:
    found = take_turns([("absent", ["-c", "import no_such_module"], 1)], 2, [].append)
    assert found == [Result("absent", {}, "ModuleNotFoundError: No module named 'no_such_module'")]
    table = ingest.table(SMALL, found)
    assert table.rows[0][:2] == ("absent", "-")
    assert table.note == "absent: ModuleNotFoundError: No module named 'no_such_module'"


def test_a_process_that_is_killed_says_so() -> None:
    assert "-9" in run(["-c", "import os; os.kill(os.getpid(), 9)"])


def test_a_program_runs_at_most_its_number_of_rounds() -> None:
    often, once = take_turns([("often", ["-c", "print('{}')"], 3), ("once", ["-c", "print('{}')"], 1)], 3, [].append)
    assert (len(often.samples), len(once.samples)) == (3, 1)


def test_ratios_are_those_of_the_common_rounds() -> None:
    slow = Result("slow", {0: {"seconds": 8.0}, 2: {"seconds": 30.0}})
    fast = Result("fast", {0: {"seconds": 4.0}, 1: {"seconds": 100.0}, 2: {"seconds": 10.0}})
    assert slow.ratio(fast) == 2.5  # the median of 8 ÷ 4 and 30 ÷ 10
    assert fast.median("seconds") == 10.0
    assert Result("none", {}, "why").ratio(fast) is None


@pytest.mark.parametrize(
    ("check", "holds"),
    [(at_least("", 4, 4.0), True), (at_least("", 4, 3.99), False), (at_most("", 1, 1.01, "s"), False)],
)
def test_targets(check: Check, holds: bool) -> None:
    assert check.holds is holds


def test_unmeasured_targets_neither_hold_nor_fail() -> None:
    assert at_least("faster than x", 4, None) == Check("faster than x", "≥ 4×", "not measured", None)


def test_every_reader_says_what_it_does() -> None:
    assert len({one.name for one in READERS}) == len(READERS)
    assert all(one.does for one in READERS)


def test_every_view_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(all_views, "large", lambda _: SMALL)
    sample = all_views.once(2000, 1)
    assert set(sample) == {*get_plugins().views(), "seconds", "cpu_seconds", "peak_bytes"}
    views = [seconds for name, seconds in sample.items() if name in get_plugins().views()]
    assert sample["seconds"] == pytest.approx(sum(views))


def test_a_command_is_measured_as_a_process() -> None:
    assert command.timed(["--version"])["peak_bytes"] > 1e6
    with pytest.raises(SystemExit, match="ended with 2: perfkit: error: no-such-file: no such file"):
        command.timed(["summary", "no-such-file"])


def test_results_are_kept_if_nothing_could_be_measured(bench_dir: Path) -> None:
    measured, failed = (Section("First", "", (), (at_most("one", 1, found, "s"),)) for found in (0.5, None))
    assert kept.keep(bench_dir, "first", measured, machine())
    assert not kept.keep(bench_dir, "first", failed, machine())
    assert [section.checks[0].measured for section, _ in kept.all_of(bench_dir, ["first"])] == ["0.50 s"]


def test_processes_keep_byte_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    assert run(["-c", "import sys; print(int(sys.dont_write_bytecode))"]) == 0


def test_saved_results_make_the_page(bench_dir: Path) -> None:
    table = Table("title", ("", "s"), (("a|b", "1.0"),))
    old = Section("First", "about", (), (at_most("earlier", 1, 2.0, "s"),), {"a": 1})
    new = Section("First", "about", (table,), (at_most("new", 1, 0.5, "s"),), {"a": 1})
    for section in (old, new):
        kept.keep(bench_dir, "first", section, machine())
    page = bench_dir / "page.md"
    page.write_text("before\n<!-- figures: begin -->\nearlier\n<!-- figures: end -->\nafter\n", encoding="utf-8")
    markdown.write_into(page, markdown.page(kept.all_of(bench_dir, ["first", "second"])))
    text = page.read_text(encoding="utf-8")
    assert text.startswith("before\n")
    assert text.endswith("<!-- figures: end -->\nafter\n")
    assert "| new | ≤ 1 s | 0.50 s | yes |" in text
    assert "| a\\|b | 1.0 |" in text
    assert "earlier" not in text


def test_a_page_without_marks_is_not_changed(bench_dir: Path) -> None:
    page = bench_dir / "page.md"
    page.write_text("text", encoding="utf-8")
    with pytest.raises(ValueError, match="the page needs the marks"):
        markdown.write_into(page, "figures")
    assert page.read_text(encoding="utf-8") == "text"
