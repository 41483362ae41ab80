"""Public functions that combine several packages. ``perfkit_core`` exports them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, overload

from perfkit_core.base.system.paths import PathLike, as_path
from perfkit_core.errors import UsageError
from perfkit_core.output.report import BRIEF_ROWS, DEFAULT_VIEWS
from perfkit_core.output.report.display import Display
from perfkit_core.output.report.summary import account_bar, choose_views, summary_report
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.flops.peaks import read_peaks
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.ranks.profile import as_profile
from perfkit_core.readers.read_options import read_options
from perfkit_core.trace.model.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

    from perfkit_core.trace.model.report_data import Report

TOGETHER_BYTES: Final = 64 << 20
"""Files of several ranks are read as one trace up to this total size. The page then has a timeline and advice."""


@dataclass(frozen=True, slots=True, repr=False)
class Summary:
    """The report of ``perfkit summary``. ``print`` shows it as text, and a notebook shows it as HTML."""

    report: Report

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """The complete table of each view, by name."""
        sections = self.report.sections
        return {part.name: part.table if part.whole is None else part.whole for part in sections}

    def __str__(self) -> str:
        from perfkit_core.output.renderers import text

        return text.render(self.report, text.WIDEST_PIPE, height=text.SCREEN - 2)  # the command has two more lines

    def __repr__(self) -> str:
        return f"<Summary of {self.report.title}: {', '.join(self.tables)}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from perfkit_core.output.renderers.html import page

        return page.fragment(self.report)


@overload
def summarize(
    profile: Trace | PathLike | Sequence[PathLike], view: None = None, by: str | Iterable[str] = (), **options: Any
) -> Summary: ...
@overload
def summarize(
    profile: Trace | PathLike | Sequence[PathLike], view: str, by: str | Iterable[str] = (), **options: Any
) -> pd.DataFrame: ...
def summarize(
    profile: Trace | PathLike | Sequence[PathLike],
    view: str | None = None,
    by: str | Iterable[str] = (),
    steps: Iterable[int] | None = None,
    pattern: str | None = None,
    kind: str | None = None,
    device: str | None = None,
    native: bool = False,
    limit: int | None = None,
    peaks: PathLike | None = None,
    workers: int = 1,
    scheduler: str | None = None,
    step_on: str | None = None,
    step_kind: str | None = None,
    graph_capture: PathLike | Sequence[PathLike] = (),
    compile_info: PathLike | Sequence[PathLike] = (),
    **display: Any,
) -> pd.DataFrame | Summary:
    """Return the table of a view. Times are integers in ns, sizes are integers in bytes, and unknown values are NA.
    Without a view, return a :class:`Summary`: the verdict and the main tables.

    - ``profile``: a Trace, or one or more sources as for :func:`perfkit_core.load`, which are read rank by rank
    - ``by``: groupings of the view
    - ``steps``: numbers of the steps to count
    - ``pattern``, ``kind``, ``device``: RE2 patterns that select the events to count
    - ``native``: use the numbers of the framework's own profiler where they differ (docs/semantics.md)
    - ``limit``: maximum number of rows of the table; of a Summary, the number of rows that it shows
    - ``peaks``: TOML file with peak rates of devices, in addition to the built-in rates
    - ``workers``: number of processes that read ranks; ``scheduler``: address of a Dask cluster that reads them instead
    - ``step_on``, ``step_kind``, ``graph_capture``, ``compile_info``: as for :func:`perfkit_core.load`, not for a Trace
    - ``display``: other fields of :class:`perfkit_core.output.report.display.Display`, such as ``sort`` or ``hide``

    Raises UsageError and SourceError.
    """
    chosen = choose_views(DEFAULT_VIEWS if view is None else [view], single=True)
    groupings = (by,) if isinstance(by, str) else tuple(by)
    rates = None if peaks is None else read_peaks(as_path(peaks))
    request = ViewRequest(
        groupings, None if steps is None else tuple(steps), pattern, kind, device, native, peaks=rates
    )
    if isinstance(profile, Trace) and (step_on or step_kind or graph_capture or compile_info):
        hint = "give them to load"
        raise UsageError("step_on, step_kind, graph_capture and compile_info apply when a source is read", hint)
    options = read_options(step_on=step_on, step_kind=step_kind, graph_capture=graph_capture, compile_info=compile_info)
    together = 0 if view is not None else TOGETHER_BYTES
    read = as_profile(profile, options=options, workers=workers, scheduler=scheduler, together_bytes=together)
    if view is None:
        brief = request == ViewRequest(steps=request.steps, peaks=rates)
        shown = Display(**{"limit": BRIEF_ROWS if limit is None else limit, **display})
        report = summary_report(read, chosen, request, shown, brief)
        bars = (account_bar(section) for section in report.sections if section.name == "causes")
        return Summary(replace(report, glance=tuple(bars)))
    table = summary_report(read, chosen, request, Display(**display)).sections[0].table
    return table if limit is None else table.head(limit)


def report(profile: Trace | PathLike | Sequence[PathLike], output: PathLike = "report.html") -> Path:
    """Write the page of ``perfkit report``, one HTML file that works offline, and return its path.

    ``profile`` is a Trace, or one or more sources as for :func:`perfkit_core.load`. Raises UsageError if ``output``
    does not end in ``.html`` or ``.htm`` or cannot be written, and SourceError."""
    from perfkit_core.exporters.export import writing
    from perfkit_core.pages.profile import run_report

    path = as_path(output)
    if path.suffix.lower() not in (".html", ".htm"):  # it could also be the name of a source
        raise UsageError(f"{path}: a page is an HTML file", "use a name that ends in .html")
    page = get_plugins().renderers()["html"].render(run_report(as_profile(profile, together_bytes=TOGETHER_BYTES)))
    with writing(path) as file:
        file.write(page.encode("utf-8", "backslashreplace"))
    return path
