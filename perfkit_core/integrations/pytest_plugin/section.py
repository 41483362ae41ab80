"""A recorded section of a test: its trace, what it ran, and the times of its repeated calls."""

from __future__ import annotations

import functools
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Final

import pandas as pd

from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.frameworks import Recorder
from perfkit_core.plugins.manager import chosen_framework, get_plugins
from perfkit_core.trace.model.schema import DEVICE_WORK, MEMCPY, SYNC
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import user_code
from perfkit_core.views.devices import kernels
from perfkit_core.views.memory import memory_pools
from perfkit_core.views.merging import table_of
from perfkit_core.views.operators import operators
from perfkit_core.views.select import step_numbers
from perfkit_core.views.steps import overview

COUNTS: Final = ("operators", "kernels", "copies", "syncs", "peak_bytes")
"""The counts of a section. All of them can be limited."""
HOST: Final = "cpu"
_STEP: Final = 1
"""Step of the recorded events. It is missing in the trace if nothing ran."""


class Section:
    """What a section of a test ran. All numbers are known when its block has ended.

    - ``trace``: the recording, as :func:`perfkit.load` returns it.
    - ``counts``: operators, kernels, copies, syncs and peak_bytes. A count that cannot be known is None: device work if
      the process has used no device, and memory if it was not recorded.
    - ``operators``, ``kernels``: name → number of calls.
    - ``times_ns``: the durations of the repeated calls in ns, measured without the profiler."""

    def __init__(self, label: str, framework: str, recorder: Recorder, memory: bool, stacks: bool) -> None:
        self.label = label
        self.framework = framework
        self.times_ns: Sequence[int] = ()
        self._trace: Trace | None = None
        self._memory = memory
        assert recorder.section is not None
        stacks = stacks and "stacks" not in recorder.instead
        self._finish: Callable[[], Trace] = recorder.section({"memory": memory, "stacks": stacks})

    def end(self) -> None:
        self._trace = self._finish().with_meta(hostname=socket.gethostname())

    @property
    def trace(self) -> Trace:
        if self._trace is None:
            raise UsageError("the section is still being recorded", "read its numbers after the with block")
        return self._trace

    @functools.cached_property
    def operators(self) -> dict[str, int]:
        return _calls(table_of(operators.VIEW, self.trace, self._request))

    @functools.cached_property
    def kernels(self) -> dict[str, int]:
        return _calls(table_of(kernels.VIEW, self.trace, self._request))

    @property
    def _request(self) -> ViewRequest:
        return ViewRequest(steps=(_STEP,) if _STEP in step_numbers(self.trace) else ())

    @functools.cached_property
    def counts(self) -> Mapping[str, int | None]:
        trace, request = self.trace, self._request
        on_device = bool(trace.meta.devices) or bool(trace.rows("kind", *DEVICE_WORK).any())
        copies, kinds = (table_of(view, trace, request) for view in (kernels.MEMCPY_VIEW, overview.VIEW))
        work = {
            "kernels": sum(self.kernels.values()),
            "copies": int(copies.loc[copies["kind"] == MEMCPY, "calls"].sum()),
            "syncs": int(kinds.loc[(kinds["kind"] == SYNC) & (kinds["place"] == "host"), "calls"].sum()),
        }
        peak = memory_pools.places_table(trace, request)["peak_growth_bytes"].max()
        device_counts = {name: count if on_device else None for name, count in work.items()}
        peak_bytes = (0 if pd.isna(peak) else int(peak)) if self._memory else None
        return {"operators": sum(self.operators.values()), **device_counts, "peak_bytes": peak_bytes}

    @property
    def device_kinds(self) -> str:
        """The kinds of devices on which the section ran, such as ``cuda``, or ``cpu`` without device work."""
        trace = self.trace
        devices = trace.codes("device")
        used = {devices.values[code] for code in set(devices.codes[trace.rows("kind", *DEVICE_WORK)].tolist())}
        return ", ".join(sorted({device.partition(":")[0] for device in used})) or HOST

    @property
    def version(self) -> str:
        """The framework and its version."""
        return f"{self.framework} {self.trace.meta.framework_version or ''}".strip()

    def callers(self, pattern: str) -> dict[tuple[str, str | None], int]:
        """Return the calls of the operators whose name contains a match of ``pattern``, by name and by line of the
        user's code. The line is None if it is unknown. Raises UsageError for an invalid pattern."""
        table = operators.table(self.trace, replace(self._request, by=("stack",), pattern=pattern))
        lines: dict[tuple[str, str | None], int] = {}
        for row in table.dropna(subset="calls").to_dict("records"):
            stack = row.get("stack")
            line = user_code.innermost(stack, self.framework) if isinstance(stack, str) else None
            lines[row["name"], line] = lines.get((row["name"], line), 0) + int(row["calls"])
        return lines


def _calls(table: pd.DataFrame) -> dict[str, int]:
    calls = table.dropna(subset="calls").groupby("name", observed=True)["calls"].sum()
    return {str(name): int(count) for name, count in calls.items()}


def recorder(framework: str | None, test_file: ModuleType | None = None) -> tuple[str, Recorder]:
    """Return the name and the recorder of a framework. By default, it is the framework that is imported. If several
    are, it is the one whose objects are variables of the test file. Raises UsageError if this names none or several."""
    __tracebackhide__ = True
    usable = {name: recorder for name, recorder in get_plugins().recorders().items() if recorder.section is not None}
    variables = vars(test_file).values() if test_file else ()
    used = {(value.__name__ if isinstance(value, ModuleType) else type(value).__module__).partition(".")[0]
            for value in variables}  # fmt: skip
    hint = f"import the right one at the top of the test file, or give framework= ({', '.join(usable)})"
    name = chosen_framework(usable, framework, hint, used)
    return name, usable[name]
