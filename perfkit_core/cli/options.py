"""Options that several commands share, how their values are parsed, and what --workers, --scheduler and --shard do."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from perfkit_core.cli.output import reading
from perfkit_core.errors import UsageError, unwritable
from perfkit_core.language.messages import LANGUAGES, speaking
from perfkit_core.system.paths import as_path, check_replaceable

if TYPE_CHECKING:
    from perfkit_core.plugins.contracts import View, ViewRequest
    from perfkit_core.ranks.profile import Profile

    _Number = click.ParamType[int]
else:
    _Number = click.ParamType  # click before 8.5 has no types for it

Command = TypeVar("Command", bound=Callable[..., Any])

SUMMARY_FORMATS: Final = "text, markdown, json or csv"
MOST: Final = 10**9
"""More is a typing error."""
LARGEST_RANGE: Final = 1_000_000
"""Steps that one ``--step N-M`` may name: more is a typing error."""

LOCATION: Final = as_path
"""Type of an option: a path, or the address of a store, which click's own type would take for a path."""


class Whole(_Number):
    """Type of an option: a whole number, ``least`` or more. Raises UsageError."""

    name = "integer"

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number of a text, or a default."""
        text = str(value).strip()
        if re.fullmatch(r"[0-9]{1,10}", text) and self.least <= int(text) <= MOST:
            return int(text)
        option = param.opts[-1] if param else "the number"
        wrong = "too large" if re.fullmatch(r"[0-9]{10,}", text) else f"not a whole number of {self.least} or more"
        raise UsageError(f"{option} {value!r} is {wrong}", f"as in {option} {max(self.least, 5)}")


def writable(text: str) -> Path:
    """Type of an option: where a file can be written. Raises UsageError."""
    path = as_path(text)
    try:
        check_replaceable(path)
    except OSError as error:
        raise unwritable(path, error) from None
    return path


sources = click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=LOCATION)
partial = click.option("--partial", is_flag=True, help="Keep the readable part of a damaged file.")
output = click.option("-o", "--output", type=writable, metavar="FILE",
                      help="Write to FILE instead of the terminal; missing folders are created.")  # fmt: skip
language = click.option("--lang", type=click.Choice(LANGUAGES), default=LANGUAGES[0], envvar="PERFKIT_LANG",
                        expose_value=False, is_eager=True,
                        callback=lambda context, _, value: context.with_resource(speaking(value)),
                        help="Language of the output (zh: Chinese).  [default: en]")  # fmt: skip
"""``--lang NAME``; not passed to the command."""
_OF_MANY_RANKS: Final = (
    click.option("--workers", type=Whole(1), default=1, metavar="N",
                 help="Processes that read ranks in parallel.  [default: 1]"),
    click.option("--scheduler", metavar="ADDRESS", help="Read the ranks on the Dask cluster of this scheduler."),
    click.option("--shard", metavar="I/N", help="Read only the I-th of N shards of the ranks, into partials (-o "
                 "NAME.perfkit.partial); the same command merges the partials of all shards."),
)  # fmt: skip


def format_option(formats: str) -> Callable[[Command], Command]:
    """Return ``--format NAME``; plugins may add to ``formats``."""
    text = f"Format of the output: {formats}.  [default: by the name of FILE, else text]"
    return click.option("--format", "format_name", metavar="NAME", help=text)


def limit_option(default: str) -> Callable[[Command], Command]:
    """Return ``--limit N``, with what happens without it."""
    text = f"Rows of each table, 0 for all.  [default: {default}]"
    return click.option("--limit", type=Whole(), metavar="N", help=text)


def many_ranks(command: Command) -> Command:
    """Add ``--workers``, ``--scheduler`` and ``--shard``."""
    for option in reversed(_OF_MANY_RANKS):
        command = option(command)
    return command


def names(values: Iterable[str]) -> list[str]:
    """Return repeated and comma-separated values as one list: ("a,b", "c") → a, b, c."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def steps(values: Iterable[str]) -> tuple[int, ...] | None:
    """Return the step numbers of ``N`` and ``N-M`` (both included), None without values. Raises UsageError."""
    numbers: dict[int, None] = {}
    for value in names(values):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
        if match is None:
            raise UsageError(f"not a step: {value!r}", "write a number as in --step 5, or a range as in --step 5-8")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < first + LARGEST_RANGE:
            raise UsageError(
                f"not a range of steps: {value!r}", "the last step must not be below the first: --step 5-8"
            )
        numbers |= dict.fromkeys(range(first, last + 1))
    return tuple(numbers) or None


@contextlib.contextmanager
def profile(
    sources: Sequence[Path], keep: bool, workers: int, scheduler: str | None, together_bytes: int = 0
) -> Iterator[Profile]:
    """Return the profile of the sources, with a spinner that shows the progress. ``together_bytes``: ranks that are not
    larger are read as one trace, unless there are workers. Raises SourceError and UsageError."""
    from perfkit_core.ranks.profile import opened

    if scheduler is not None and workers > 1:
        raise UsageError("--workers and --scheduler exclude each other", "a cluster has its own workers")
    with reading(sources) as say:
        yield opened(sources, keep, workers, scheduler, say, together_bytes)


def views_of_partials(profile: Profile) -> tuple[str, ...]:
    """Return the views that partials hold; nothing for other profiles, which can compute any view."""
    from perfkit_core.ranks.profile import Reduced

    return profile.stored.job.views if isinstance(profile, Reduced) else ()


def write_shard(
    shard: str,
    sources: Sequence[Path],
    output: Path | None,
    views: Sequence[View],
    request: ViewRequest,
    keep: bool,
    average: bool = False,
) -> None:
    """Reduce shard ``I/N`` of the ranks and write the partials. Raises UsageError and SourceError."""
    from perfkit_core.ranks import files, plan, run
    from perfkit_core.report.summary import check_average

    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", shard)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"not a shard: {shard!r}", "the first of four is 1/4, the last 4/4")
    number, of = int(match[1]), int(match[2])
    if output is None or not output.name.endswith(files.SUFFIX):
        raise UsageError("--shard writes partials", f"-o NAME{files.SUFFIX}")
    if average:
        check_average(views)
    job = plan.Job(tuple(view.name for view in views), request, average, keep)
    with reading(sources) as show:
        whole = plan.plan(sources, keep)
        part = whole.share(number, of)
        count = len(part.ranks)
        partials, failed = run.run(run.Serial(), part, job, lambda done: show(f"rank {done} of {count}"))
    left_out = {number - 1 + of * position: rank.message for position, rank in failed.items()}
    stored = files.Stored(
        files.FORMAT, files.VERSION, whole.source, len(whole.ranks), (number, of), job, part.findings, tuple(partials),
        left_out,
    )  # fmt: skip
    files.write(stored, output)
    ranks = f"{len(whole.ranks)} rank{'s' if whole.ranks[1:] else ''}"
    empty = "" if count else f": shard {shard} contains none of the {ranks} and is empty"
    click.echo(f"wrote {output}{empty}", err=True)
