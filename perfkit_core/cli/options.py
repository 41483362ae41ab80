"""Options that several verbs share, and how their text is parsed.

Numbers on the command line: a wrong one is told in one line, with an example of a right one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from perfkit_core.errors import UsageError, unwritable
from perfkit_core.language.messages import LANGUAGES, speaking
from perfkit_core.system.paths import as_path

if TYPE_CHECKING:
    _Number = click.ParamType[int]
else:
    _Number = click.ParamType  # click before 8.5 has no types for it

MOST = 10**9
"""More is a typing error."""


class Whole(_Number):
    """A whole number, ``least`` or more. Raises UsageError."""

    name = "integer"

    def __init__(self, least: int = 0) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number of the text, or the number that a default is."""
        text = str(value).strip()
        if re.fullmatch(r"[0-9]{1,10}", text) and self.least <= int(text) <= MOST:
            return int(text)
        option = param.opts[-1] if param else "the number"
        wrong = "too large" if re.fullmatch(r"[0-9]{10,}", text) else f"no whole number from {self.least} on"
        raise UsageError(f"{option} {value!r} is {wrong}", f"as in {option} {max(self.least, 5)}")


Command = TypeVar("Command", bound=Callable[..., Any])

SUMMARY_FORMATS: Final = "text, markdown, json or csv"
LARGEST_RANGE: Final = 1_000_000
"""Steps that one ``--step N-M`` may name: more is a typing error."""

LOCATION: Final = as_path
"""Type of an option: a path, or the address of a store. click's own type would take one for a path of this machine."""


def writable(text: str) -> Path:
    """Type of an option: where a file can be written. Raises UsageError."""
    from perfkit_core.system.paths import check_replaceable

    path = as_path(text)
    try:
        check_replaceable(path)
    except OSError as error:
        raise unwritable(path, error) from None
    return path


sources = click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=LOCATION)
partial = click.option("--partial", is_flag=True, help="Keep what can be read of a damaged file.")
workers = click.option("--workers", type=Whole(1), default=1, metavar="N",
                       help="Processes that read ranks at the same time.  [default: 1]")  # fmt: skip
scheduler = click.option("--scheduler", metavar="ADDRESS", help="Read the ranks on the Dask cluster of this scheduler.")
shard = click.option("--shard", metavar="I/N", help="Only the I-th of N shares of the ranks, into partials (-o "
                     "NAME.perfkit.partial); the same command merges the partials of all shares.")  # fmt: skip
output = click.option("-o", "--output", type=writable, metavar="FILE",
                      help="Write to FILE instead of the terminal. A folder that is not there is made.")  # fmt: skip


def _speak(context: click.Context, _: click.Parameter, value: str) -> None:
    context.with_resource(speaking(value))


language = click.option("--lang", type=click.Choice(LANGUAGES), default=LANGUAGES[0], envvar="PERFKIT_LANG",
                        expose_value=False, is_eager=True, callback=_speak,
                        help="Language of what people read (zh: Chinese).  [default: en]")  # fmt: skip
"""``--lang NAME``: the command itself need not know of it."""


def format_option(formats: str) -> Callable[[Command], Command]:
    """``--format NAME``; plugins may add to ``formats``. What is left out is told by the name of the output file."""
    return click.option("--format", "format_name", metavar="NAME",
                        help=f"Format of the output: {formats}.  [default: as FILE is named, else text]")  # fmt: skip


def limit_option(text: str) -> Callable[[Command], Command]:
    """``--limit N``, with what happens without it."""
    return click.option("--limit", type=Whole(), metavar="N", help=f"Rows of each table, 0 for all; {text}.")


def many_ranks(command: Command) -> Command:
    """``--workers``, ``--scheduler`` and ``--shard``."""
    return workers(scheduler(shard(command)))


def share(value: str) -> tuple[int, int]:
    """Number and count of ``I/N``. Raises UsageError."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", value)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UsageError(f"not a share: {value!r}", "the first of four is 1/4, the last 4/4")
    return int(match[1]), int(match[2])


def names(values: Iterable[str]) -> list[str]:
    """Repeated and comma-separated values as one list: ("a,b", "c") → a, b, c."""
    return [part.strip() for value in values for part in value.split(",") if part.strip()]


def steps(values: Iterable[str]) -> tuple[int, ...] | None:
    """Step numbers of ``N`` and ``N-M`` (both included), None where nothing is asked. Raises UsageError."""
    found = [number for value in names(values) for number in _range(value)]
    return tuple(dict.fromkeys(found)) or None


def _range(value: str) -> range:
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
    if match is None:
        raise UsageError(f"not a step: {value!r}", "write a number as in --step 5, or a range as in --step 5-8")
    first, last = int(match[1]), int(match[2] or match[1])
    if not first <= last < first + LARGEST_RANGE:
        raise UsageError(f"not a range of steps: {value!r}", "the first must not be above the last, as in --step 5-8")
    return range(first, last + 1)
