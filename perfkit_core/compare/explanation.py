"""Report sections on the causes of a difference, and on the parts of a run without a counterpart in the other run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pandas as pd

from perfkit_core.base.language.messages import SIDES, Message, Text, mark, message, say
from perfkit_core.base.language.units import format_count
from perfkit_core.compare import comparison
from perfkit_core.compare.align.align import UNMATCHED, Alignment
from perfkit_core.compare.align.fusion import SEPARATOR
from perfkit_core.compare.attribute import leaves
from perfkit_core.compare.attribute.causes import by_family, by_kernel, by_layer
from perfkit_core.trace.model.report_data import Chart, Section
from perfkit_core.views.steps.step_rows import step_rows

SHOWN_CAUSES, SHOWN_ROWS, SHOWN_UNMATCHED, DRAWN, NAMED, SHOWN_NAMES = 15, 30, 15, 6, 3, 6
LARGEST: Final = mark("The largest causes: {causes:parts}.")
MEAN: Final = mark("Mean of the middle steps (those nearest to the median).")
_NO_LAYERS = mark("both runs need layers: record with annotate(model), or with a profiler that records layer calls")
OF_PARTS: Final = mark(
    "Mean wall-clock time of the middle steps (those nearest to the median). The difference between median and mean is "
    "a separate row, so all rows sum to the median step."
)
_OF_RUNS = mark(
    "Wall-clock time of the whole recordings, or per call of the kernel that both repeat, from one call to the next. "
    "The largest difference comes first."
)
_OF_LAYERS = mark("The time of a layer excludes the layers inside it.")
_OF_KERNELS = mark(
    "If kernels or copies overlap, the common time counts for the one that started first. All of them count as calls."
)
_EXPLAINED = mark(
    "Each nanosecond of the step counts for exactly one cause (docs/semantics: attribution). Count effect: time due to "
    "more or fewer calls. Per call effect: time due to longer or shorter calls. Explained so far: the differences of "
    "this row and of all rows above it, as a share of the total difference."
)
PER_STEP: Final = mark("All numbers are means of the middle steps.")
PER_RUN: Final = mark(
    "At least one run has no steps: all numbers are of the whole recording, or per call of the kernel that both repeat."
)
_ALONE = mark("Operators, and device work outside operators, that only one run has.")
_SHARES = mark(
    "Share of the time that has a counterpart in the other run, on this or an earlier level. CPU: host operators. "
    "Device: device work. Step: wall-clock time of the middle steps, or of the recording if a run has no steps."
)


def largest_causes(changes: pd.DataFrame) -> list[Message]:
    """Return the largest ``changes`` as short texts with differences, such as ``matmul, forward +3 ms``."""
    largest = changes.head(NAMED)
    named = zip(largest["name"], largest["difference_ns"].tolist(), strict=True)
    return [message("{name} {difference:+ns}", name=name, difference=difference) for name, difference in named]


def drawn(name: str, title: str, steps: pd.DataFrame) -> Section:
    chart = Chart("waterfall", "name", ("difference_ns", "time_so_far_ns"), note=say("The axis may begin above 0."))
    note = say("The bars show the largest causes of the difference.") if len(steps) else ""
    return Section(name, title, steps, note, say("no cause differs beyond noise"), chart=chart)


def attribution_sections(tables: comparison.Comparison) -> Iterator[Section]:
    """Yield the sections on the causes of the difference. If a side has no events, yield only an empty section."""
    tree, title = tables.attribution, say("Causes of the difference")
    if tree.empty:
        yield Section("attribution", title, tree, empty=say("a side has no events to compare"))
        return
    parts = tree[tree["level"] == leaves.CATEGORY].rename(columns={"name": "category"})
    parts = comparison.with_difference(parts[["category", "place", "base_ns", "other_ns"]].reset_index(drop=True))
    note = say(OF_PARTS if tables.alignment.per_step else _OF_RUNS)
    yield Section("step_parts", say("Time by category"), parts, note)

    rows, lines = tables.causes, list[Text]()
    if tables.alignment.per_step:
        base, other = map(len, tables.alignment.windows)
        base_steps, other_steps = (len(step_rows(trace)) for trace in tables.alignment.traces)
        lines.append(say(
            "Mean of the steps nearest to the median: {base} of the {base_steps} steps of base, and {other} of the "
            "{other_steps} steps of other.",
            base=base, base_steps=base_steps, other=other, other_steps=other_steps,
        ))  # fmt: skip
    unlaunched = rows[rows["operator"] == leaves.UNLAUNCHED]
    if len(unlaunched):
        lines.append(message(
            "The launch of some device work was not recorded ({base:ns} of base, {other:ns} of other), for example "
            "because it was launched before the recording. This work has a family, but no phase, layer or operator.",
            base=int(unlaunched["base_ns"].sum()), other=int(unlaunched["other_ns"].sum()),
        ))  # fmt: skip
    lines += fused_operators(tables.alignment)
    yield Section("causes", title, rows, say(_EXPLAINED), limit=SHOWN_CAUSES, lines=tuple(lines))

    mean, layers, kernels = [say(MEAN)] if tables.alignment.per_step else [], by_layer(tree), by_kernel(tree)
    note = " ".join([*mean, say(_OF_LAYERS)]) if len(layers) else ""
    yield Section("layers", say("Difference by layer"), layers, note, say(_NO_LAYERS), SHOWN_CAUSES)
    yield Section("families", say("Difference by family"), by_family(rows), " ".join(mean), limit=SHOWN_CAUSES)
    note = " ".join([*mean, say(_OF_KERNELS)]) if len(kernels) else ""
    none = say("no device work was recorded")
    yield Section("kernels", say("Difference by kernel"), kernels, note, none, SHOWN_CAUSES)
    title = say("Difference by category, phase, layer, family, operator and event")
    yield Section("attribution", title, tree.drop(columns="parent"), " ".join(mean), limit=SHOWN_ROWS)


def fused_operators(alignment: Alignment) -> Iterator[Message]:
    """Yield sentences on operators of one run that are fused to kernels in the other run, the longest time first."""
    rows = alignment.rows[alignment.rows["operator"].fillna("").str.contains(SEPARATOR, regex=False)]
    rows = rows[(rows["base_calls"] > 0) & (rows["other_calls"] > 0)]
    processor = "device" if rows[[f"{side}_device_ns" for side in SIDES]].to_numpy().any() else "cpu"
    largest = rows.sort_values([f"{side}_{processor}_ns" for side in SIDES], ascending=False, kind="stable").head(NAMED)
    for row in largest.to_dict("records"):
        names = row["operator"].split(SEPARATOR)
        shown = [*names[:SHOWN_NAMES], "…"] if names[SHOWN_NAMES:] else names
        numbers = {side: int(row[f"{side}_{processor}_ns"]) for side in SIDES}
        calls = {f"{side}_calls": format_count(row[f"{side}_calls"]) for side in SIDES}
        yield message(
            "A compiler fused these operators in one of the runs: {names} ({phase}). Calls: {base_calls} in base "
            "({base:ns}), {other_calls} in other ({other:ns}).",
            names=SEPARATOR.join(shown), phase=row["phase"], **calls, **numbers,
        )  # fmt: skip


def alignment_sections(alignment: Alignment) -> Iterator[Section]:
    """Yield the section "matched" with shares by level, and the section "unmatched" with operators of one side only."""
    levels = list(alignment.matched_share["base"])
    shares: dict[str, object] = {"level": levels}
    for measure in ("cpu", "device", "step"):
        for side, by_level in alignment.matched_share.items():
            values = [by_level[level][measure] for level in levels]
            shares[f"{side}_{measure}_ratio"] = pd.array([pd.NA if v is None else v for v in values], "Float64")
    yield Section("matched", say("Matched share of the runs"), pd.DataFrame(shares), say(_SHARES))
    rows = alignment.rows[alignment.rows["level"] == UNMATCHED].drop(columns=["level", "shape", "dtype"])
    on_device = {side: shares["device"] is not None for side, shares in alignment.matched.items()}
    rows = comparison.known_device_times(rows.reset_index(drop=True), on_device)
    note = f"{say(_ALONE)} {say(PER_STEP if alignment.per_step else PER_RUN)}" if len(rows) else ""
    none = say("everything has a counterpart")
    yield Section("unmatched", say("Operators without a counterpart"), rows, note, none, SHOWN_UNMATCHED)
