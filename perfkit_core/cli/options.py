"""Options that several commands share, and functions that parse and apply their values."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import click

from perfkit_core.base.language.messages import LANGUAGES, speaking
from perfkit_core.base.system.paths import as_path, check_replaceable
from perfkit_core.cli.output import echo, reading
from perfkit_core.errors import UsageError, unwritable

if TYPE_CHECKING:
    from perfkit_core.plugins.contracts import View, ViewRequest
    from perfkit_core.ranks.profile import Profile
    from perfkit_core.readers.read_options import ReadOptions

    _Number = click.ParamType[int]
else:
    _Number = click.ParamType  # click.ParamType is not generic before click 8.5

Command = TypeVar("Command", bound=Callable[..., Any])

SUMMARY_FORMATS: Final = "text, markdown, json or csv"
MOST: Final = 10**9
"""Maximum value of an option that takes a whole number. Larger values are rejected as typos."""
LARGEST_RANGE: Final = 1_000_000
"""Maximum number of steps in ``--step N-M``. Larger ranges are rejected as typos."""

LOCATION: Final = as_path
"""Option type: a local path, or the address of a store such as ``s3://…``. ``click.Path`` accepts only local paths."""


class WholeNumber(_Number):
    """Option type: a whole number from ``least`` to ``most``. Raises UsageError."""

    name = "integer"

    def __init__(self, least: int = 0, most: int = MOST) -> None:
        self.least, self.most = least, most

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the value as a number. ``value`` is a text, or the option's default value."""
        text = str(value).strip()
        if re.fullmatch(r"[0-9]{1,10}", text) and self.least <= int(text) <= self.most:
            return int(text)
        option = param.opts[-1] if param else "the number"
        large = re.fullmatch(r"[0-9]+", text) and int(text[:11]) > self.most
        wrong = f"too large (at most {self.most:,})" if large else f"not a whole number of {self.least} or more"
        raise UsageError(f"{option} {value!r} is {wrong}", f"example: {option} {max(self.least, 5)}")


def peak_rates(text: str) -> str:
    """Option type: the path of a file with peak rates of devices. Return its content. Raises UsageError."""
    from perfkit_core.plugins.flops.peaks import read_peaks

    return read_peaks(as_path(text))


def writable(text: str) -> Path:
    """Option type: the path of a file that can be written. Raises UsageError."""
    path = as_path(text)
    try:
        check_replaceable(path)
    except OSError as error:
        raise unwritable(path, error) from None
    return path


def _limit_memory(context: click.Context, param: click.Parameter, value: str | None) -> None:
    from perfkit_core.base.system import machine

    if value is None:
        most = machine.default_limit()
    else:
        from perfkit_core.readers.load import most_memory

        most = most_memory(value)
    context.with_resource(machine.limited(most))


def adding(*decorators: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds the given options to a command."""

    def add(command: Command) -> Command:
        for option in reversed(decorators):
            command = option(command)
        return command

    return add


sources = click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=LOCATION)
_read_options = adding(
    click.option("--partial", is_flag=True, help="Leave out what is damaged instead of failing: events of a trace "
                 "file, or files of a run folder."),
    click.option("--max-memory", metavar="SIZE", envvar="PERFKIT_MAX_MEMORY", expose_value=False,
                 callback=_limit_memory, help="Stop with an error when perfkit would use more memory than about "
                 "SIZE, such as 8 GiB.  [env var: PERFKIT_MAX_MEMORY; default: half of the free memory]"),
    click.option("--step-on", metavar="NAME", help="Take each recorded range, operator or function call named NAME as "
                 "one step. NAME may be FILE.py:FUNCTION or MODULE:FUNCTION (of Python frames), or a REGEX. "
                 "none: the whole recording counts, without steps."),
    click.option("--step-kind", metavar="KIND", help="Count only steps of this kind of an inference server: prefill, "
                 "decode, mixed, denoise or capture."),
    click.option("--graph-capture", multiple=True, metavar="FILE", help="Attribute the kernels of replayed graphs to "
                 "operators with FILE: a recording of the graph capture, or a folder of such recordings.  [default: "
                 "NAME.capture.json.gz and the folder capture_traces next to the source]"),
    click.option("--compile-info", multiple=True, metavar="PATH", help="Read the operators, layers and lines of code "
                 "of compiled kernels from PATH: a file or folder that the framework's compiler wrote, such as the "
                 "folder TORCH_TRACE.  [default: such files next to a SOURCE]"),
)  # fmt: skip


def reads(command: Command) -> Command:
    """Add the options that say how recordings are read. The command gets their values as one argument,
    ``read_options``."""

    @functools.wraps(command)
    def with_read_options(
        *args: Any, partial: bool, step_on: str | None, step_kind: str | None, graph_capture: tuple[str, ...],
        compile_info: tuple[str, ...], **kwargs: Any,
    ) -> Any:  # fmt: skip
        from perfkit_core.readers.read_options import read_options

        values = read_options(
            partial=partial, step_on=step_on, step_kind=step_kind, graph_capture=graph_capture,
            compile_info=compile_info,
        )  # fmt: skip
        return command(*args, read_options=values, **kwargs)

    return cast(Command, _read_options(with_read_options))


peaks = click.option("--peaks", type=peak_rates, metavar="FILE", envvar="PERFKIT_PEAKS", help="Use the peak rates of "
                     "devices in this TOML file, in addition to the built-in rates.")  # fmt: skip
output = click.option("-o", "--output", type=writable, metavar="FILE",
                      help="Write to FILE instead of the terminal. Missing folders are created.")  # fmt: skip
language = click.option("--lang", type=click.Choice(LANGUAGES), default=LANGUAGES[0], envvar="PERFKIT_LANG",
                        expose_value=False, is_eager=True,
                        callback=lambda context, _, value: context.with_resource(speaking(value)),
                        help="Language of the output: English (en) or Chinese (zh).  [default: en]")  # fmt: skip
"""The option ``--lang NAME``. Its value is not passed to the command."""


many_ranks = adding(
    click.option("--workers", type=WholeNumber(1), default=1, metavar="N",
                 help="Number of processes that read ranks in parallel.  [default: 1]"),
    click.option("--scheduler", metavar="ADDRESS", help="Read the ranks on a Dask cluster. ADDRESS is the address of "
                 "its scheduler."),
    click.option("--shard", metavar="I/N", help="Split the ranks into N shards, read only the I-th shard, and write "
                 "its partial results to a file (-o NAME.perfkit.partial). To merge all shards, run the same command "
                 "on these files."),
)  # fmt: skip


def format_option(formats: str) -> Callable[[Command], Command]:
    """Return the option ``--format NAME``. ``formats`` lists the built-in formats for the help."""
    text = f"Output format: {formats}.  [default: by the suffix of FILE, else text]"
    return click.option("--format", "format_name", metavar="NAME", help=text)


def limit_option(default: str, of: str = "rows per table; 0 shows all rows") -> Callable[[Command], Command]:
    """Return the option ``--limit N``. ``default`` describes the default, and ``of`` what is counted, for the help."""
    text = f"Maximum number of {of}.  [default: {default}]"
    return click.option("--limit", type=WholeNumber(), metavar="N", help=text)


def names(values: Iterable[str]) -> list[str]:
    """Return all values of a repeated, comma-separated option: ("a,b", "c") → ["a", "b", "c"]."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def steps(values: Iterable[str]) -> tuple[int, ...] | None:
    """Return the step numbers: ("5", "7-9") gives (5, 7, 8, 9). Without values, return None. Raises UsageError."""
    numbers: dict[int, None] = {}
    for value in names(values):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", value)
        if match is None:
            raise UsageError(f"--step {value!r} is not a step number or range", "example: --step 5, or --step 5-8")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + LARGEST_RANGE:
            problem = "ends before it begins" if last < first else f"has more than {LARGEST_RANGE:,} steps"
            raise UsageError(f"--step {value!r} {problem}", "example: --step 5-8")
        numbers |= dict.fromkeys(range(first, last + 1))
    return tuple(numbers) or None


@contextlib.contextmanager
def profile(
    sources: Sequence[Path],
    read_options: ReadOptions,
    workers: int,
    scheduler: str | None,
    together_bytes: int = 0,
) -> Iterator[Profile]:
    """Open the profile of the sources and show the progress with a spinner.

    Several ranks are read as one trace if their files have at most ``together_bytes`` in total, and neither --workers
    nor --scheduler is used. Otherwise, each rank is read separately. Raises SourceError and UsageError."""
    from perfkit_core.ranks.profile import opened

    if scheduler is not None and workers > 1:
        raise UsageError("--workers and --scheduler cannot be combined", "a Dask cluster has its own workers")
    with reading(sources) as say:
        yield opened(sources, read_options, workers, scheduler, say, together_bytes)


def views_of_partials(profile: Profile) -> tuple[str, ...]:
    """Return the names of the views in a profile of partial results. Return () for any other profile."""
    from perfkit_core.ranks.profile import PartialResults

    return profile.stored.job.views if isinstance(profile, PartialResults) else ()


def write_shard(
    shard: str,
    sources: Sequence[Path],
    output: Path | None,
    views: Sequence[View],
    request: ViewRequest,
    read_options: ReadOptions,
    average: bool = False,
) -> None:
    """Write the partial results of shard ``I/N`` of the ranks to ``output``. Raises UsageError and SourceError."""
    from perfkit_core.output.report.summary import check_average
    from perfkit_core.ranks import files, plan, run

    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"--shard {shard!r} is not I/N", "for four shards, use 1/4 to 4/4")
    number, of = int(match[1]), int(match[2])
    if output is None or not output.name.endswith(files.SUFFIX):
        raise UsageError("--shard requires an output file for partial results", f"use -o NAME{files.SUFFIX}")
    if average:
        check_average(views)
    job = plan.Job(tuple(view.name for view in views), request, average, read_options)
    with reading(sources) as show:
        full_plan = plan.plan(sources, read_options.partial)
        part = full_plan.share(number, of)
        count = len(part.ranks)
        partials, failed = run.run(run.Serial(), part, job, lambda done: show(f"rank {done} of {count}"))
    left_out = {number - 1 + of * position: rank.message for position, rank in failed.items()}
    stored = files.Stored(
        files.FORMAT, files.VERSION, full_plan.source, len(full_plan.ranks), (number, of), job, part.findings,
        tuple(partials), left_out,
    )  # fmt: skip
    files.write(stored, output)
    ranks = f"{len(full_plan.ranks)} rank{'s' if full_plan.ranks[1:] else ''}"
    empty = "" if count else f": shard {shard} is empty, because there are only {ranks}"
    echo(f"wrote {output}{empty}", err=True)
