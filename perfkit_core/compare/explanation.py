"""Sections of a report on where a difference comes from, and on what has no counterpart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pandas as pd

from perfkit_core.compare.align.align import UNMATCHED, Alignment, align
from perfkit_core.compare.attribute.attribute import attribute
from perfkit_core.compare.attribute.causes import by_family, by_kernel, by_layer, causes, label, waterfall
from perfkit_core.compare.attribute.leaves import CATEGORY, UNLAUNCHED
from perfkit_core.compare.comparison import known_device_times, with_difference
from perfkit_core.compare.slices import middle_steps
from perfkit_core.language.messages import Message, Text, mark, message, say
from perfkit_core.model.trace import Trace
from perfkit_core.report.model import Chart, Section
from perfkit_core.views.steps.step_rows import step_rows

SHOWN_UNMATCHED = 15
_ALL_MATCHED = mark("everything has a counterpart")
_ALONE_IN_STEP = mark(
    "Operators, and device work outside of them, that only one side has; mean times and calls of a step."
)
_ALONE_IN_RUN = mark("Operators, and device work outside of them, that only one side has; for the run.")
_SHARES = mark(
    "What has a counterpart on this level or one before it: of host operators and device work of all steps, and of the "
    "middle steps, each instant once."
)
_SHARES_OF_RUN = mark(
    "What has a counterpart on this level or one before it: of host operators, device work, and the whole recording, "
    "each instant once."
)


def alignment_sections(found: Alignment) -> Iterator[Section]:
    """Sections matched and unmatched."""
    note = say(_SHARES if found.per_step else _SHARES_OF_RUN)
    yield Section("matched", say("How much has a counterpart"), shares(found), note)
    alone = found.rows[found.rows["level"] == UNMATCHED].drop(columns=["level", "shape", "dtype"])
    note = say(_ALONE_IN_STEP if found.per_step else _ALONE_IN_RUN)
    on_device = {side: any(one["device"] is not None for one in levels.values())
                 for side, levels in found.matched_share.items()}  # fmt: skip
    alone, none = known_device_times(alone.reset_index(drop=True), on_device), say(_ALL_MATCHED)
    title = say("Without a counterpart")
    yield Section("unmatched", title, alone, note if len(alone) else "", empty=none, limit=SHOWN_UNMATCHED)


def shares(found: Alignment) -> pd.DataFrame:
    """Columns level, then for cpu, device and step base_…_ratio and other_…_ratio (missing: no such time)."""
    levels = list(found.matched_share["base"])
    table: dict[str, object] = {"level": levels}
    for what in ("cpu", "device", "step"):
        for side, by_level in found.matched_share.items():
            values = [by_level[level][what] for level in levels]
            table[f"{side}_{what}_ratio"] = pd.array([pd.NA if v is None else v for v in values], "Float64")
    return pd.DataFrame(table)


SHOWN_CAUSES, SHOWN_ROWS, DRAWN, NAMED = 15, 30, 10, 3
_EMPTY = mark("a side has no events to compare")
_NO_LAYERS = mark("layers are needed in both runs: annotate(model), or a profiler that records the calls of layers")
MEAN = mark("Mean of the middle steps.")
_OF_WATERFALL = mark("The largest causes, one after the other.")
_BETWEEN_MEDIANS = mark("From median to median: the largest causes, one after the other.")
_OF_PARTS = mark("The median step as the mean of the middle steps, each instant once; the largest difference first.")
_OF_RUNS = mark("The whole recordings, each instant once; the largest difference first.")
_OF_LAYERS = mark("The time of each layer without the layers in it.")
_OF_KERNELS = mark(
    "Time in kernels and copies, each instant once. What other kernels hide counts nothing; calls are all."
)
_EXPLAINED = mark(
    "Each nanosecond of the step counts once, for the one thing that it is spent on (docs/semantics: attribution). "
    "Count effect: it is called more or less often; per call effect: a call takes longer or shorter. Explained: of the "
    "whole difference, by this row and those before it."
)


@dataclass(frozen=True, slots=True, repr=False)
class Explained:
    """``attribution``: the tree of :func:`attribute`; ``alignment``: what corresponds to what; ``steps``: of how many
    of its steps the tree tells the mean, and how many it has, for each side (none where whole runs are compared)."""

    attribution: pd.DataFrame
    alignment: Alignment
    steps: tuple[tuple[int, int], ...] = ()

    def __repr__(self) -> str:
        return f"Explained({len(self.attribution)} rows, {self.alignment!r})"


def explained(base: Trace, other: Trace, medians: tuple[int, int] | None = None) -> Explained:
    """Take the difference of two runs apart; ``medians`` as for :func:`attribute`."""
    found = align(base, other)
    steps = tuple((len(middle_steps(one)), len(step_rows(one))) for one in (base, other)) if found.per_step else ()
    return Explained(attribute(base, other, medians), found, steps)


def sentences(found: Explained) -> tuple[Message, ...]:
    """The largest causes, for a hurried reader; none where nothing differs."""
    if found.attribution.empty:
        return ()
    largest = named(causes(found.attribution))
    return (message("The largest causes: {causes:parts}.", causes=largest),) if largest else ()


def named(found: pd.DataFrame) -> list[Message]:
    """Return the first causes that differ, with their differences."""
    largest = found[found["difference_ns"] != 0].head(NAMED)
    return [
        message("{name} {difference:+ns}", name=label(row), difference=row["difference_ns"])
        for row in largest.to_dict("records")
    ]


def sections(found: Explained) -> tuple[Section, ...]:
    """Sections step_parts, causes, layers, families, kernels, attribution, matched, unmatched; without events
    attribution in place of the first six."""
    return (*_of_attribution(found), *alignment_sections(found.alignment))


def _of_attribution(why: Explained) -> Iterator[Section]:
    tree = why.attribution
    if tree.empty:
        yield Section("attribution", say("Where the difference comes from"), tree, empty=say(_EMPTY))
        return
    found = causes(tree)
    note = say(_OF_PARTS if why.steps else _OF_RUNS)
    yield Section("step_parts", say("What the steps are spent on"), parts(tree), note)
    lines: tuple[Text, ...] = (*_middle(why.steps), *_unlaunched(found))
    title = say("What the difference is made of")
    yield Section("causes", title, found, say(_EXPLAINED), limit=SHOWN_CAUSES, lines=lines)
    mean = [say(MEAN)] if why.steps else []
    yield from _grouped(tree, mean)
    title = say("Where the difference comes from, level by level")
    yield Section("attribution", title, tree.drop(columns="parent"), " ".join(mean), limit=SHOWN_ROWS)


def _grouped(tree: pd.DataFrame, mean: list[str]) -> Iterator[Section]:
    """``mean``: of what the times are the mean, where they are one."""
    title, layers = say("The difference by layer"), by_layer(tree)
    note = " ".join([*mean, say(_OF_LAYERS)]) if len(layers) else ""
    yield Section("layers", title, layers, note, empty=say(_NO_LAYERS), limit=SHOWN_CAUSES)
    yield Section("families", say("The difference by family"), by_family(tree), " ".join(mean), limit=SHOWN_CAUSES)
    title, kernels = say("The difference by kernel"), by_kernel(tree)
    note = " ".join([*mean, say(_OF_KERNELS)]) if len(kernels) else ""
    yield Section("kernels", title, kernels, note, empty=say("no work on a device was recorded"), limit=SHOWN_CAUSES)


def picture(found: Explained) -> Iterator[Section]:
    """The section waterfall: no rows where nothing differs, and none at all without events."""
    if not found.attribution.empty:
        base, other = (int(found.attribution[f"{side}_ns"].iloc[0]) for side in ("base", "other"))
        steps = waterfall(causes(found.attribution), ("base", base), ("other", other), DRAWN)
        yield drawn("waterfall", say("From base to other"), steps, of_medians=bool(found.steps))


def drawn(name: str, title: str, steps: pd.DataFrame, of_medians: bool) -> Section:
    """The section of a waterfall; ``of_medians``: whether its ends are medians of steps."""
    chart = Chart("waterfall", "name", ("difference_ns", "time_so_far_ns"), note=say("The axis may begin above 0."))
    note = say(_BETWEEN_MEDIANS if of_medians else _OF_WATERFALL) if len(steps) else ""
    return Section(name, title, steps, note, say("nothing differs"), chart=chart)


def parts(tree: pd.DataFrame) -> pd.DataFrame:
    """The categories of the partition: category, place, base_ns, other_ns, difference_ns, change_ratio. They sum to
    both steps."""
    rows = tree[tree["level"] == CATEGORY].rename(columns={"name": "category"})
    return with_difference(rows[["category", "place", "base_ns", "other_ns"]].reset_index(drop=True))


def _middle(steps: tuple[tuple[int, int], ...]) -> Iterator[str]:
    """On how much the causes rest."""
    if steps:
        (base, base_steps), (other, other_steps) = steps
        yield say(
            "Mean of the steps nearest to the median: {base} of {base_steps} in base, "
            "{other} of {other_steps} in other.",
            base=base, base_steps=base_steps, other=other, other_steps=other_steps,
        )  # fmt: skip


def _unlaunched(found: pd.DataFrame) -> Iterator[Message]:
    """What the device does for launches that were not recorded cannot be told apart by phase, layer and operator."""
    lost = found[found["operator"] == UNLAUNCHED]
    if len(lost):
        base, other = (int(lost[f"{side}_ns"].sum()) for side in ("base", "other"))
        yield message(
            "{base:ns} of base and {other:ns} of other is device work without a recorded launch, as of the step before "
            "the recording: it has a family, but no phase, layer or operator.",
            base=base,
            other=other,
        )
