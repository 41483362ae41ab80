"""What ``--workers``, ``--scheduler`` and ``--shard`` do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from perfkit_core.cli.options import share
from perfkit_core.cli.output import working
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import View, ViewRequest
from perfkit_core.ranks import files
from perfkit_core.ranks.plan import Job, plan
from perfkit_core.ranks.profile import Profile, Reduced, opened
from perfkit_core.ranks.run import Serial, run
from perfkit_core.report.summary import check_average


@contextlib.contextmanager
def profile(
    sources: Sequence[Path], keep: bool, workers: int, scheduler: str | None, together_bytes: int = 0
) -> Iterator[Profile]:
    """The profile of the sources, with a spinner that tells how far it is. ``together_bytes``: ranks that are not
    larger are read as one trace, unless they shall be read apart. Raises SourceError and UsageError."""
    if scheduler is not None and workers > 1:
        raise UsageError("--workers and --scheduler exclude each other", "a cluster has workers of its own")
    with working(f"reading {', '.join(map(str, sources[:3]))}") as say:
        yield opened(sources, keep, workers, scheduler, say, together_bytes)


def held_views(found: Profile, usual: Sequence[str]) -> Sequence[str]:
    """The views to show when none are asked for: of partials all that they hold."""
    return found.stored.job.views if isinstance(found, Reduced) else usual


def named(found: Profile, sources: Sequence[Path]) -> Sequence[Path]:
    """The files to name in a report; none of partials, which know what they are of."""
    return () if isinstance(found, Reduced) else sources


def check_page(found: Profile, views: Sequence[View]) -> None:
    """Raises UsageError for partials that lack views of the page."""
    lacking = [] if not isinstance(found, Reduced) else [v.name for v in views if v.name not in found.stored.job.views]
    if lacking:
        shown = ", ".join(lacking[:3]) + (f" and {len(lacking) - 3} more" if lacking[3:] else "")
        raise UsageError(
            f"the partials do not hold what a page shows ({shown})", "make them with perfkit report --shard"
        )


def write_share(
    sources: Sequence[Path],
    shard: str,
    output: Path | None,
    views: Sequence[View],
    request: ViewRequest,
    average: bool,
    keep: bool,
) -> str:
    """Reduce a share of the ranks and write the partials. Returns what was done. Raises UsageError and SourceError."""
    number, of = share(shard)
    if output is None or not output.name.endswith(files.SUFFIX):
        raise UsageError("--shard writes partials", f"-o NAME{files.SUFFIX}")
    if average:
        check_average(views)
    job = Job(tuple(view.name for view in views), request, average, keep)
    with working(f"reading {', '.join(map(str, sources[:3]))}") as say:
        whole = plan(sources, keep)
        mine = whole.share(number, of)
        count = len(mine.ranks)
        partials, failed = run(Serial(), mine, job, lambda done: say(f"rank {done} of {count}"))
    stored = files.Stored(
        files.FORMAT, files.VERSION, whole.source, len(whole.ranks), (number, of), job, mine.findings, tuple(partials),
        {number - 1 + of * at: one.message for at, one in failed.items()},
    )  # fmt: skip
    files.write(stored, output)
    ranks = f"{len(whole.ranks)} rank{'s' if whole.ranks[1:] else ''}"
    return f"wrote {output}" + ("" if count else f": share {shard} holds none of the {ranks}; it is empty")
