"""Sentences that summarize step time, the steps of inference servers, memory at the peak and stragglers in a report.
They use the tables of views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import pandas as pd

from perfkit_core.base.language.messages import Message, mark, message, plural, worded
from perfkit_core.base.language.units import format_ratio
from perfkit_core.output.report.step_time import step_time
from perfkit_core.output.report.verdict import verdict
from perfkit_core.trace.model.meta import EDGES, Finding, spelled
from perfkit_core.trace.model.serving_step import CAPTURE, DECODE, DENOISE, MIXED, PREFILL
from perfkit_core.trace.model.timed_steps import WORK_BETWEEN, TimedSteps

_MIN_SHARE: Final = 0.01


def headline(
    tables: Mapping[str, pd.DataFrame], timed: TimedSteps | None = None, quality: Iterable[Finding] = ()
) -> tuple[Message, ...]:
    """Return the verdict, and sentences on the step time; for an inference server, sentences on its steps. ``tables``
    contains the tables of the views of a verdict and of ``serving``, as far as they are known. ``timed``: the steps
    that a clock timed. ``quality``: the findings on the recording."""
    served = tuple(serving_sentences(tables.get(SERVING)))
    return served or (*verdict(tables, quality), *_steps(tables, timed), *work_between(quality))


def work_between(quality: Iterable[Finding]) -> tuple[Message, ...]:
    """Return a sentence on the work between the training steps, if a clock found that it takes long."""
    texts = [finding.text for finding in quality if finding.code == WORK_BETWEEN]
    return tuple(message("{text}.", text=text) for text in texts[:1])


def _steps(tables: Mapping[str, pd.DataFrame], timed: TimedSteps | None) -> tuple[Message, ...]:
    sentences = [*step_time(tables.get("steps"), timed)]
    if not sentences:
        return ()
    devices = tables.get("device")
    if devices is None or devices.empty:
        return tuple(sentences)
    busy = devices[devices["busy_ns"].notna() & devices["busy_in_steps_ratio"].notna()]
    shares = busy["busy_in_steps_ratio"]
    if len(busy) == 1:
        text = mark("{device} is busy for {share:ratio} of the step time, communication included.")
        sentences.append(message(text, device=busy["device"].iloc[0], share=shares.iloc[0]))
    elif len(busy):
        least, most = format_ratio(shares.min()), format_ratio(shares.max())
        share = least if least == most else message("{low} to {high}", low=least, high=most)
        text = mark("The {count} devices are busy for {share} of the step time, communication included.")
        sentences.append(message(text, count=len(busy), share=share))
    return tuple(sentences)


MEMORY_DEVICES: Final = 4
"""At most this many devices get a sentence, those with the most memory first."""
MEMORY_NAMES: Final = 3


def alive_at_peak(peak: pd.DataFrame) -> Iterator[Message]:
    """Yield a sentence per device on the memory allocated at its peak, from the table of the view memory_peak."""
    if peak.empty:
        return
    places = peak.groupby(["rank", "device"], dropna=False, sort=False)["bytes"].sum()
    for rank, device in places.sort_values(ascending=False, kind="stable").head(MEMORY_DEVICES).index:
        of_rank = peak["rank"].isna() if pd.isna(rank) else peak["rank"] == rank
        rows = peak[of_rank.fillna(False) & (peak["device"] == device)]
        largest = rows[(rows["ratio"] >= _MIN_SHARE).fillna(False)].nlargest(MEMORY_NAMES, "ratio", keep="first")
        names = [
            message("{name} {share:ratio}", name=worded(name), share=share)
            for name, share in zip(largest["name"], largest["ratio"].tolist(), strict=True)
        ]
        if names and (pd.isna(rank) or len(places) == 1):
            yield message("Memory at the peak of {device}: {names:list}.", device=device, names=names)
        elif names:
            text = mark("Memory at the peak of rank {rank}, {device}: {names:list}.")
            yield message(text, rank=rank, device=device, names=names)


MATTERS: Final = 0.01
"""No rank is called a straggler if all waits sum to less than this share of the sum of all ranks' step times."""
SLOWER: Final = 0.05
"""A slow rank exceeds the median time outside communication by at least this share."""
OUTLYING: Final = 5
"""A rank is slow if its time outside communication exceeds the median of all ranks by at least this many median
absolute deviations."""
NAMED_RANKS: Final = 3
"""Sentences of the same kind are written for at most this many ranks."""


class Stragglers(NamedTuple):
    """The ranks to highlight, with the worst rank first, and sentences on the ranks."""

    ranks: tuple[int, ...]
    lines: tuple[Message, ...]


def stragglers(ranks: pd.DataFrame, waiting: pd.DataFrame) -> Stragglers:
    """Return the stragglers from the tables of the views ranks and stragglers.

    - A straggler causes at least a quarter of all waiting (if there are N < 6 ranks, at least 1.5 / N).
    - If all waiting takes less than 1% of the step time, there is no straggler.
    - A rank is no straggler if clock errors could explain more than half of the waiting that it causes.
    - Ranks whose clocks cannot be compared are left out. A sentence names them.
    - If ranks are missing in collectives, the waiting times are lower bounds. If no straggler is found then, a
      sentence says that the straggler is unknown.
    - Without any waiting times, the ranks that are much slower than the median rank are returned.
    """
    ranks = ranks[ranks["own_time_ns"].notna()]
    if ranks.empty:
        return Stragglers((), ())
    # rank → mean time outside communication per step (ns), and its excess over the median rank (ratio)
    average = ranks.groupby("rank")["own_time_ns"].mean().astype("float64")
    middle = float(average.sort_values().iloc[(len(average) - 1) // 2]) or 1.0
    by_rank = {int(rank): (time, time / middle - 1) for rank, time in zip(average.index, average.tolist(), strict=True)}
    waiting = waiting[waiting["collectives"] > 0] if len(waiting) else waiting
    if waiting.empty:
        return _slower_on_their_own(by_rank)
    compared = ranks[ranks["rank"].isin(waiting["rank"])]
    waiting_ns = int(waiting["caused_wait_ns"].sum())
    matters = waiting_ns >= MATTERS * float(compared["dur_ns"].sum())
    share = max(0.25, 1.5 / len(waiting))
    late = waiting[waiting["caused_wait_ns"] >= share * waiting_ns] if matters else waiting.iloc[:0]
    doubtful = 2 * late["doubtful_ns"] > late["caused_wait_ns"]
    unsure, late = late[doubtful], late[~doubtful]
    unknown = sorted(set(ranks["rank"].tolist()) - set(waiting["rank"].tolist()))
    at_least = bool(waiting["incomplete"].sum() > EDGES * waiting["collectives"].sum())
    lines = [*_late(late, waiting_ns, at_least)]
    for row in unsure.head(NAMED_RANKS)[["rank", "caused_wait_ns"]].to_dict("records"):
        text = mark(
            "It is unknown whether other ranks wait for rank {rank}: clock errors could explain most of the apparent "
            "wait of {time:ns}."
        )
        lines.append(message(text, rank=row["rank"], time=row["caused_wait_ns"]))
    lines = lines or [_no_straggler(compared, waiting_ns, bool(unknown), at_least)]
    stragglers = tuple(int(rank) for rank in late["rank"].tolist())
    for rank in [rank for rank in stragglers if rank in by_rank][:NAMED_RANKS]:
        time, over = by_rank[rank]
        text = mark(
            "Without exposed communication, a step of rank {rank} takes {time:ns}, which is not more than a step of "
            "the median rank. So rank {rank} is not slower; it starts later."
        )
        if over > 0:
            text = mark(
                "Without exposed communication, a step of rank {rank} takes {time:ns}, which is {more:ratio} more than "
                "a step of the median rank."
            )
        lines.append(message(text, rank=rank, time=time, more=over))
    if unknown:
        text = mark(
            "The waiting times of {unknown} of {count} ranks are unknown ({ranks}), because their clocks cannot be "
            "compared with the clocks of other ranks."
        )
        lines.append(message(text, unknown=len(unknown), count=len(by_rank), ranks=spelled(unknown)))
    return Stragglers(stragglers, tuple(lines))


def _late(late: pd.DataFrame, waiting_ns: int, at_least: bool) -> Iterator[Message]:
    columns = ["rank", "last", "collectives", "caused_wait_ns"]
    for rank, last, collectives, caused in late.head(NAMED_RANKS)[columns].itertuples(index=False):
        values = {"rank": rank, "last": last, "collectives": collectives, "time": caused, "share": caused / waiting_ns}
        text = mark(
            "Rank {rank} keeps the other ranks waiting: it was the last rank in {last} of {collectives} collectives. "
            "The other ranks waited {time:ns} for it, which is {share:ratio} of all waiting."
        )
        if at_least:
            text = mark(
                "Among the ranks that can be compared, rank {rank} keeps the other ranks waiting: it was the last rank "
                "in {last} of {collectives} collectives. The other ranks waited at least {time:ns} for it, which is "
                "{share:ratio} of all known waiting."
            )
        yield message(text, **values)


def _no_straggler(ranks: pd.DataFrame, waiting_ns: int, unknown: bool, at_least: bool) -> Message:
    if at_least:
        text = mark(
            "The straggler is unknown, because some ranks cannot be compared or were not read. Together the ranks "
            "that can be compared waited at least {time:ns} for each other, which is {share:ratio} of their step time."
        )
    elif unknown:
        text = mark(
            "No single rank is the straggler among the {known} ranks with known waiting times. Together these ranks "
            "waited {time:ns} for each other, which is {share:ratio} of their step time."
        )
    else:
        text = mark(
            "No single rank is the straggler. Together the ranks waited {time:ns} for each other, which is "
            "{share:ratio} of their step time."
        )
    share = waiting_ns / float(ranks["dur_ns"].sum() or 1)
    return message(text, time=waiting_ns, share=share, known=ranks["rank"].nunique())


def _slower_on_their_own(by_rank: Mapping[int, tuple[float, float]]) -> Stragglers:
    # Among many ranks, some are always slower than most. So the excess must be a multiple of the usual deviation.
    distances = sorted(abs(over) for _, over in by_rank.values())
    least = max(SLOWER, OUTLYING * distances[(len(distances) - 1) // 2])
    slow = sorted((rank for rank, (_, over) in by_rank.items() if over >= least), key=lambda rank: -by_rank[rank][0])
    if slow:
        text = mark(
            "Rank {rank} is slower than the other ranks: without exposed communication, its steps take {time:ns}, "
            "which is {more:ratio} more than the steps of the median rank."
        )
        lines = [message(text, rank=rank, time=by_rank[rank][0], more=by_rank[rank][1]) for rank in slow[:NAMED_RANKS]]
    else:
        text = mark(
            "No rank is much slower than the other ranks: without exposed communication, their steps take {low:ns} to "
            "{high:ns}."
        )
        times = [time for time, _ in by_rank.values()]
        lines = [message(text, low=min(times), high=max(times))]
    return Stragglers(tuple(slow), tuple(lines))


SERVING: Final = "serving"
_SERVING_NAMES: Final = {
    PREFILL: mark("Serving, prefill"),
    DECODE: mark("Serving, decode"),
    MIXED: mark("Serving, mixed prefill and decode"),
    DENOISE: mark("Serving, denoising"),
}


def serving_sentences(table: pd.DataFrame | None) -> Iterator[Message]:
    """Yield sentences on each step kind: its batch, its time, its tokens per second, and how busy the device is.
    Without the table, or in a recording of a training, yield nothing."""
    if table is None or table.empty or "kind" not in table:
        return
    for row in table[table["kind"] != CAPTURE].to_dict("records"):
        numbers = {str(name): value for name, value in row.items() if not pd.isna(value)}
        values = {"steps": _serving_steps(numbers), "time": _serving_time(numbers)}
        if "step_ns" in numbers and "busy_ns" in numbers:
            device = message(
                "The device is busy for {busy:ratio} of the step time. For {gap:ratio} it waits for the next step to "
                "start.",
                busy=numbers["busy_ratio"], gap=numbers.get("gap_ratio", 0.0),
            )  # fmt: skip
            yield message("{steps} {time} {device}", **values, device=device)
        else:
            yield message("{steps} {time}", **values)


def _serving_steps(numbers: Mapping[str, Any]) -> Message:
    values = {"what": message(_SERVING_NAMES[numbers["kind"]]), "requests": numbers.get("requests")}
    if "requests" not in numbers:
        return plural("{what}: {n:count} step.", "{what}: {n:count} steps.", numbers["steps"], **values)
    return plural(
        "{what}: {n:count} step with {requests:count} requests.",
        "{what}: {n:count} steps with {requests:count} requests on average.",
        numbers["steps"], **values,
    )  # fmt: skip


def _serving_time(numbers: Mapping[str, Any]) -> Message:
    if "step_ns" in numbers and "tokens_per_s" in numbers:
        text = mark("A step takes {time:ns} on average ({rate:count} tokens/s).")
        return message(text, time=numbers["step_ns"], rate=round(numbers["tokens_per_s"]))
    if "step_ns" in numbers:
        return message("A step takes {time:ns} on average.", time=numbers["step_ns"])
    if numbers.get("busy_ns") and "tokens" in numbers:
        text = mark("A step has {time:ns} of device work (at most {rate:count} tokens/s).")
        busy_ns = numbers["busy_ns"]
        return message(text, time=busy_ns, rate=round(numbers["tokens"] / numbers["steps"] / busy_ns * 1e9))
    return message("The range of a step takes {time:ns} on the host.", time=numbers["range_ns"])
