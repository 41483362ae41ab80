"""Report sections on the causes of a difference, and on unmatched parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from perfkit_core.compare import comparison, slices
from perfkit_core.compare.align.align import UNMATCHED, Alignment, align
from perfkit_core.compare.attribute import attribute, leaves
from perfkit_core.compare.attribute.causes import by_family, by_kernel, by_layer, causes, label, waterfall
from perfkit_core.language.messages import Message, Text, mark, message, say
from perfkit_core.model.trace import Trace
from perfkit_core.report.model import Chart, Section
from perfkit_core.views.steps.step_rows import step_rows

SHOWN_CAUSES, SHOWN_ROWS, SHOWN_UNMATCHED, DRAWN, NAMED = 15, 30, 15, 10, 3
MEAN = mark("Mean of the middle steps.")
_NO_LAYERS = mark("both runs need layers: record with annotate(model), or with a profiler that records layer calls")
_OF_WATERFALL = mark("The largest causes, one after the other.")
_BETWEEN_MEDIANS = mark("From median to median: the largest causes, one after the other.")
_OF_PARTS = mark("The median step as the mean of the middle steps, each instant once; the largest difference first.")
_OF_RUNS = mark("The whole recordings, each instant once; the largest difference first.")
_OF_LAYERS = mark("The time of each layer without the layers in it.")
_OF_KERNELS = mark(
    "Time in kernels and copies, each instant once. Time hidden by other kernels is not counted, but all calls are."
)
_EXPLAINED = mark(
    "Each nanosecond of the step is counted once, for what it is spent on (docs/semantics: attribution). Count effect: "
    "more or fewer calls; per call effect: longer or shorter calls. Explained: share of the whole difference, by this "
    "row and those before it."
)
_ALONE_IN_STEP = mark(
    "Operators, and device work outside of them, that only one side has; mean times and calls of a step."
)
_ALONE_IN_RUN = mark("Operators, and device work outside of them, that only one side has; for the run.")
_SHARES = mark(
    "Share with a counterpart on this level or one before it: of host operators and device work of all steps, and of "
    "the middle steps, each instant once."
)
_SHARES_OF_RUN = mark(
    "Share with a counterpart on this level or one before it: of host operators, device work, and the whole recording, "
    "each instant once."
)


@dataclass(frozen=True, slots=True, repr=False)
class Explained:
    """``attribution``: the tree of :func:`attribute`; ``alignment``: the counterparts; ``steps``: the number of steps
    in the tree's means, and of all steps, for each side (empty if whole runs are compared)."""

    attribution: pd.DataFrame
    alignment: Alignment
    steps: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        return f"Explained({len(self.attribution)} rows, {self.alignment!r})"


def explained(base: Trace, other: Trace, medians: tuple[int, int] | None = None) -> Explained:
    """Return the explanation of the difference of two runs; ``medians`` as for :func:`attribute`."""
    alignment = align(base, other)
    steps: tuple[tuple[int, int], ...] = ()
    if alignment.per_step:
        steps = tuple((len(slices.middle_steps(trace)), len(step_rows(trace))) for trace in (base, other))
    return Explained(attribute.attribute(base, other, medians), alignment, steps)


def largest_causes(causes: pd.DataFrame) -> list[Message]:
    """Return the first causes that differ, with their differences."""
    largest = causes[causes["difference_ns"] != 0].head(NAMED)
    return [
        message("{name} {difference:+ns}", name=label(row), difference=row["difference_ns"])
        for row in largest.to_dict("records")
    ]


def picture(why: Explained) -> Iterator[Section]:
    """Yield the section waterfall, without rows if nothing differs; none without events."""
    if not why.attribution.empty:
        base, other = (int(why.attribution[f"{side}_ns"].iloc[0]) for side in ("base", "other"))
        steps = waterfall(causes(why.attribution), ("base", base), ("other", other), DRAWN)
        yield drawn("waterfall", say("From base to other"), steps, of_medians=bool(why.steps))


def drawn(name: str, title: str, steps: pd.DataFrame, of_medians: bool) -> Section:
    """Return the section of a waterfall; ``of_medians``: whether its ends are medians of steps."""
    chart = Chart("waterfall", "name", ("difference_ns", "time_so_far_ns"), note=say("The axis may begin above 0."))
    note = say(_BETWEEN_MEDIANS if of_medians else _OF_WATERFALL) if len(steps) else ""
    return Section(name, title, steps, note, say("nothing differs"), chart=chart)


def attribution_sections(why: Explained) -> Iterator[Section]:
    """Yield the sections step_parts, causes, layers, families, kernels, attribution; without events only the last."""
    tree = why.attribution
    if tree.empty:
        empty = say("a side has no events to compare")
        yield Section("attribution", say("Where the difference comes from"), tree, empty=empty)
        return
    parts = tree[tree["level"] == leaves.CATEGORY].rename(columns={"name": "category"})
    parts = comparison.with_difference(parts[["category", "place", "base_ns", "other_ns"]].reset_index(drop=True))
    note = say(_OF_PARTS if why.steps else _OF_RUNS)
    yield Section("step_parts", say("What the steps are spent on"), parts, note)

    rows, lines = causes(tree), list[Text]()
    if why.steps:
        (base, base_steps), (other, other_steps) = why.steps
        lines.append(say(
            "Mean of the steps nearest to the median: {base} of {base_steps} in base, "
            "{other} of {other_steps} in other.",
            base=base, base_steps=base_steps, other=other, other_steps=other_steps,
        ))  # fmt: skip
    unlaunched = rows[rows["operator"] == leaves.UNLAUNCHED]
    if len(unlaunched):
        lines.append(message(
            "{base:ns} of base and {other:ns} of other is device work without a recorded launch, such as work of the "
            "step before the recording: it has a family, but no phase, layer or operator.",
            base=int(unlaunched["base_ns"].sum()), other=int(unlaunched["other_ns"].sum()),
        ))  # fmt: skip
    title = say("What the difference is made of")
    yield Section("causes", title, rows, say(_EXPLAINED), limit=SHOWN_CAUSES, lines=tuple(lines))

    mean, layers, kernels = [say(MEAN)] if why.steps else [], by_layer(tree), by_kernel(tree)
    note = " ".join([*mean, say(_OF_LAYERS)]) if len(layers) else ""
    yield Section("layers", say("The difference by layer"), layers, note, say(_NO_LAYERS), SHOWN_CAUSES)
    yield Section("families", say("The difference by family"), by_family(tree), " ".join(mean), limit=SHOWN_CAUSES)
    note = " ".join([*mean, say(_OF_KERNELS)]) if len(kernels) else ""
    none = say("no device work was recorded")
    yield Section("kernels", say("The difference by kernel"), kernels, note, none, SHOWN_CAUSES)
    title = say("Where the difference comes from, level by level")
    yield Section("attribution", title, tree.drop(columns="parent"), " ".join(mean), limit=SHOWN_ROWS)


def alignment_sections(alignment: Alignment) -> Iterator[Section]:
    """Yield the sections matched (shares by level) and unmatched (rows that only one side has)."""
    levels = list(alignment.matched_share["base"])
    shares: dict[str, object] = {"level": levels}
    for measure in ("cpu", "device", "step"):
        for side, by_level in alignment.matched_share.items():
            values = [by_level[level][measure] for level in levels]
            shares[f"{side}_{measure}_ratio"] = pd.array([pd.NA if v is None else v for v in values], "Float64")
    note = say(_SHARES if alignment.per_step else _SHARES_OF_RUN)
    yield Section("matched", say("Share with a counterpart"), pd.DataFrame(shares), note)
    rows = alignment.rows[alignment.rows["level"] == UNMATCHED].drop(columns=["level", "shape", "dtype"])
    on_device = {side: any(one["device"] is not None for one in by_level.values())
                 for side, by_level in alignment.matched_share.items()}  # fmt: skip
    rows = comparison.known_device_times(rows.reset_index(drop=True), on_device)
    note = say(_ALONE_IN_STEP if alignment.per_step else _ALONE_IN_RUN) if len(rows) else ""
    none = say("everything has a counterpart")
    yield Section("unmatched", say("Without a counterpart"), rows, note, none, SHOWN_UNMATCHED)
