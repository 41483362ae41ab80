"""All benchmarks by name, with their sizes for a full run and for a quick run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks import advice_speed, all_views, command, console, ingest, job_of_ranks, large_runs, streaming
from benchmarks.inputs import large
from benchmarks.readers import READERS
from benchmarks.results import Section


@dataclass(frozen=True, slots=True)
class Options:
    """Options that determine the sizes of the inputs and the number of rounds."""

    quick: bool
    rounds: int
    huge: bool = False


def _ingest(options: Options) -> Section:
    sizes = (20,) if options.quick else (100, 500)
    return ingest.section([large(size) for size in sizes], READERS, options.rounds, console.progress)


def _files(options: Options) -> Section:
    from benchmarks import real_files

    return real_files.section(5 if options.quick else real_files.SIZE_MB, options.rounds, console.progress)


def _ascend(options: Options) -> Section:
    from benchmarks import ascend

    return ascend.section(5 if options.quick else ascend.SIZE_MB, options.rounds, console.progress)


def _streaming(options: Options) -> Section:
    sizes = (20,) if options.quick else (*streaming.SIZES_MB, *([streaming.HUGE_MB] if options.huge else []))
    return streaming.section(sizes, options.rounds, console.progress)


def _command(options: Options) -> Section:
    return command.section(options.rounds, console.progress, 20 if options.quick else 100)


def _parts(options: Options) -> Section:
    from benchmarks import command_parts, real_files

    size, names = (5, command_parts.FILES[:1]) if options.quick else (real_files.SIZE_MB, command_parts.FILES)
    return command_parts.section(size, options.rounds, console.progress, names)


def _views(options: Options) -> Section:
    return all_views.section(
        (100_000,) if options.quick else tuple(all_views.TARGETS_S), options.rounds, console.progress
    )


def _advice(options: Options) -> Section:
    return advice_speed.section((100_000,) if options.quick else advice_speed.SIZES, options.rounds, console.progress)


def _pages(options: Options) -> Section:
    from benchmarks import pages

    return pages.section(5 if options.quick else 23, options.rounds, console.progress)


def _live_torch(options: Options) -> Section:
    from benchmarks import live_torch

    return live_torch.section(20_000 if options.quick else 1_000_000, options.rounds, console.progress)


def _stored_run(options: Options) -> Section:
    events = 200_000 if options.quick else 100_000_000 if options.huge else 20_000_000
    return large_runs.section(events, options.rounds, console.progress)


def _live_paddle(options: Options) -> Section:
    from benchmarks import live_paddle

    return live_paddle.section(20_000 if options.quick else 500_000, options.rounds, console.progress)


def _ranks(options: Options) -> Section:
    ranks = 8 if options.quick else job_of_ranks.MANY if options.huge else 64
    return job_of_ranks.section(ranks, options.rounds, console.progress)


def _load(options: Options) -> Section:
    from benchmarks import load

    sizes, stored = ((100_000,), 1_000_000) if options.quick else ((1_000_000, 10_000_000), 20_000_000)
    return load.section(sizes, stored, options.quick, console.progress)


def _false_alarms(options: Options) -> Section:
    from benchmarks import false_alarms

    return false_alarms.section(50 if options.quick else false_alarms.COMPARISONS, console.progress)


SUITES: dict[str, Callable[[Options], Section]] = {
    "ingest": _ingest,
    "files": _files,
    "ascend": _ascend,
    "streaming": _streaming,
    "command": _command,
    "parts": _parts,
    "views": _views,
    "advice": _advice,
    "pages": _pages,
    "stored-run": _stored_run,
    "ranks": _ranks,
    "load": _load,
    "false-alarms": _false_alarms,
    "live-torch": _live_torch,
    "live-paddle": _live_paddle,
}
