"""The first sentences of a report: what limits the training, where, and what part of the step that is. They follow from
the account of causes, in which each nanosecond counts once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pandas as pd

from perfkit_core.base.language.messages import Message, mark, message
from perfkit_core.base.language.shortening import cut
from perfkit_core.causes import account_view
from perfkit_core.causes.host_work import HOST_WORK, INPUT, LAUNCHING, LOADING, OPERATORS
from perfkit_core.causes.labels import EARLIER
from perfkit_core.causes.segments import (
    COMMUNICATION,
    COMPUTE,
    COPY,
    HOST,
    IN_FLIGHT,
    LATENCY,
    TAIL,
    UNLAUNCHED,
)
from perfkit_core.output.report.step_time import equal
from perfkit_core.trace.assembly.first_launches import ONLY_COLD
from perfkit_core.trace.model.meta import Finding, may_lack_work

DEPTH: Final = "depth"
VIEWS: Final = ("causes", "partition", "device", "operators", "steps")
"""Views whose tables a verdict uses. It uses those that are there."""
_SECOND: Final = 0.1
"""Minimum share of the step time of a second part of the account that is named."""
_TIE: Final = 0.9
"""Two parts of the account limit the steps alike if the smaller one has at least this share of the larger one."""
_NAMED: Final = 0.25
"""Minimum share of a part of the account of a cause that is named."""
_MOST_NAMES: Final = 2
_PHRASES: Final = dict(account_view.PHRASES)
_LENGTH: Final = 60
"""Maximum number of characters of a name."""
_LEAST: Final = 0.03
"""Minimum share of the step time of a cause that is named because it is the largest of its part."""

_PARTS: Final = {
    COMPUTE: mark("devices compute for {share:ratio} of {whole}{time}"),
    COMMUNICATION: mark("devices only communicate for {share:ratio} of {whole}{time}"),
    COPY: mark("devices only copy data for {share:ratio} of {whole}{time}"),
    HOST: mark("devices are idle for {share:ratio} of {whole}{time}, until the host launches the next work"),
    LATENCY: mark("for {share:ratio} of {whole}{time}, devices are about to start work that was launched"),
    IN_FLIGHT: mark("for {share:ratio} of {whole}{time}, launched work does not start, and no event shows why"),
    UNLAUNCHED: mark("for {share:ratio} of {whole}{time}, the next device work has no recorded launch"),
    TAIL: mark("for {share:ratio} of {whole}{time}, no device work follows"),
}
_ON_HOST: Final = {
    COMPUTE: mark("operators compute for {share:ratio} of {whole}{time}"),
    COMMUNICATION: mark("operators communicate for {share:ratio} of {whole}{time}"),
    HOST: mark("no operator runs for {share:ratio} of {whole}{time}"),
    TAIL: mark("nothing was recorded for {share:ratio} of {whole}{time}"),
}
_LIMITS: Final = {
    COMPUTE: mark("Device-bound"), COMMUNICATION: mark("Communication-bound"), COPY: mark("Copy-bound"),
    HOST: mark("Host-bound"), LATENCY: mark("Latency-bound"),
}  # fmt: skip
_OF_HOST: Final = {
    INPUT: mark("Input-bound"), LAUNCHING: mark("Launch-bound"), OPERATORS: mark("Launch-bound"),
    LOADING: mark("Start-up-bound"),
}  # fmt: skip
"""Words for host work that mostly is of one kind."""
_MOSTLY: Final = mark("{part}, mostly {names:list}")
_PARTLY: Final = mark("{part}, among others {names:list}")
_UNKNOWN: Final = mark("Cannot tell what limits it")


def verdict(tables: Mapping[str, pd.DataFrame], quality: Iterable[Finding] = ()) -> Iterator[Message]:
    """Yield sentences on what limits the steps, or without steps the recording. Without the table of the view causes,
    yield nothing. If device work may be missing, as ``quality`` tells, say only why there is no verdict."""
    causes, devices, steps = tables.get("causes"), tables.get("device"), tables.get("steps")
    if causes is None or causes.empty or _only_ranges(tables.get("operators"), devices):
        return
    count = 0 if steps is None else len(steps)
    complete = _complete_steps(tables.get("partition"), count)
    whole, whole_ns = whole_of(causes, devices, steps)
    lost = devices is not None and "span_ns" in devices and (devices["busy_ns"].gt(0) & devices["span_ns"].eq(0)).any()
    on_device = devices is not None and bool(devices["busy_ns"].gt(0).any())
    quality = tuple(quality)
    lacks, cold = may_lack_work(quality), any(finding.code == ONLY_COLD for finding in quality)
    if lacks is not None or (not complete and (count or lost)):
        busy = causes[(causes[DEPTH] == 0) & causes["cause"].isin((COMPUTE, COMMUNICATION, COPY))]["ratio"].sum()
        text = mark(
            "Cannot tell what limits it: device work was not recorded completely. Devices work for at least "
            "{share:ratio} of {whole}."
        )
        if lacks is not None:
            text = mark("No verdict: {why}. Devices work for at least {share:ratio} of {whole}.")
            text = text if on_device else mark("No verdict: {why}.")
        yield message(text, share=float(busy), whole=whole, why=lacks)
        return
    own, earlier = _without_earlier(causes, whole)
    yield from _account(own, whole, whole_ns, on_device, cold)
    yield from earlier
    if complete < count:
        text = mark(
            "Only {complete} of {steps} steps count, because the device work of the others was not recorded completely."
        )
        yield message(text, complete=complete, steps=count)


def whole_of(
    causes: pd.DataFrame, devices: pd.DataFrame | None, steps: pd.DataFrame | None
) -> tuple[Message, float | None]:
    """Return what the shares of the account are of, and its time in ns for one device, which is the time of all causes
    of a screen: the median step, a step's mean time on the devices where they lag, or the recording without steps. The
    time is None if steps are so unequal that one time says little."""
    working = 1 if devices is None else max(int(devices["busy_ns"].gt(0).sum()), 1)
    devices_ns = float(causes.loc[causes[DEPTH] == 0, account_view.time_column(causes)].sum()) / working
    if steps is None or steps.empty:
        return message("the recorded time"), devices_ns
    if account_view.time_column(causes) == "launched_ns":
        return message("a step's time on the devices"), devices_ns / max(steps["step"].nunique(), 1)
    durations = steps["dur_ns"].astype("float64")
    return message("the step time"), float(durations.median()) if equal(durations) else None


def _without_earlier(causes: pd.DataFrame, whole: Message) -> tuple[pd.DataFrame, list[Message]]:
    """Return the tree without what ran before the steps, or is waited for, and which no change of a step can shorten.
    Also return sentences on these times if they are long."""
    whole_ns, time = causes.loc[causes[DEPTH] == 0, "total_ns"].sum(), account_view.time_column(causes)
    result, sentences = causes.copy(), list[Message]()
    for position in causes.index[(causes[DEPTH] == 1) & causes["cause"].isin(account_view.NOT_OF_STEPS)]:
        row, below = causes.loc[position], _below(causes, position)
        root = causes.index[(causes[DEPTH] == 0) & (causes.index < position)][-1]
        result.loc[root, "ratio"] -= row["ratio"]
        result = result.drop([position, *below.index])
        text = mark("Besides, for {share:ratio} of {whole}, devices run work that was launched before these steps.")
        if causes.loc[root, "cause"] == IN_FLIGHT:
            text = mark(
                "Besides, the host waits {time:ns} in {call} for work that was launched before the recording and is "
                "not in it."
            )
        elif row["cause"] == EARLIER:
            text = mark("Besides, for {share:ratio} of {whole}, devices run work from before the recording.")
        if row["total_ns"] >= _SECOND * whole_ns and (time == "total_ns" or row[time]):
            call = below["cause"].iloc[0] if len(below) else None
            values = {"time": int(row["total_ns"]), "share": float(row["ratio"]), "whole": whole}
            sentences.append(message(text, **values, call=call))
    return result, sentences


def _only_ranges(operators: pd.DataFrame | None, devices: pd.DataFrame | None) -> bool:
    """Return whether neither operators nor device work were recorded, so that nothing is known about waits."""
    return operators is not None and operators.empty and devices is not None and not devices["busy_ns"].any()


def _complete_steps(partition: pd.DataFrame | None, steps: int) -> int:
    """Return the number of steps whose device work was recorded completely."""
    if partition is None or not steps:
        return steps
    if not len(partition) or not partition["total_ns"].sum():
        return 0
    return int(partition["steps"].max()) if "steps" in partition else steps


def _account(
    causes: pd.DataFrame, whole: Message, whole_ns: float | None, on_device: bool, cold: bool
) -> Iterator[Message]:
    """Yield a sentence on the largest part of the account, which limits the steps, and on the second one. ``whole`` and
    ``whole_ns`` are those of :func:`whole_of`. ``cold``: whether
    all steps load code to the device."""
    top = causes[causes[DEPTH] == 0].sort_values("ratio", ascending=False, kind="stable")
    large = top[(top["ratio"] >= _SECOND) | (top.index == top.index[0])].head(2)
    limits, parts, shares = list[str](), list[Message](), list[float]()
    for position, row in large.iterrows():
        word, share = row["cause"], float(row["ratio"])
        below = _below(causes, int(str(position)))
        template = (_PARTS if on_device else _ON_HOST)[word]
        time = None if whole_ns is None else message(" ({time:ns})", time=share * whole_ns)
        part = message(template, share=share, whole=whole, time=time)
        names, named = _names(below if word in account_view.INNER else below[below[DEPTH] == 1], share)
        said = part if not names else message(_MOSTLY if named >= share / 2 else _PARTLY, part=part, names=names)
        limits.append(_OF_HOST[LOADING] if cold and word == HOST else _limit(word, below, share, on_device))
        parts.append(said)
        shares.append(share)
    values = {"limit": message(limits[0]), "said": parts[0]}
    if len(parts) > 1 and shares[1] >= _TIE * shares[0] and _UNKNOWN not in limits and limits[0] != limits[1]:
        yield message("{limit} and {other} alike: {said}.", **values, other=message(limits[1]))
    else:
        yield message("{limit}: {said}.", **values)
    for said in parts[1:]:
        yield message("Besides, {said}.", said=said)


def _below(causes: pd.DataFrame, position: int) -> pd.DataFrame:
    """Return the rows of the tree below a row."""
    after = causes.loc[position + 1 :]
    ends = after.index[after[DEPTH] <= causes.loc[position, DEPTH]]
    return after if ends.empty else after.loc[: ends[0] - 1]


def _limit(word: str, below: pd.DataFrame, share: float, on_device: bool) -> str:
    if word == HOST and not on_device:
        loading = below[(below[DEPTH] == 1) & (below["cause"] == INPUT)]["ratio"].sum()
        return _OF_HOST[INPUT] if loading >= share / 2 else mark("Overhead-bound")
    if word == HOST:
        kinds = below[below[DEPTH] == 1].groupby(below["cause"].map(_OF_HOST))["ratio"].sum()
        if len(kinds) and kinds.max() >= share / 2:
            return str(kinds.idxmax())
        return _LIMITS[HOST]
    if word == COMPUTE and not on_device:
        return mark("Compute-bound")
    return _LIMITS.get(word, _UNKNOWN)


def _names(below: pd.DataFrame, share: float) -> tuple[list[Message], float]:
    """Return the largest causes with their shares, and the sum of these. Of host work, the events are named that take
    most of it, if there are such."""
    named: tuple[list[Message], float] = ([], 0.0)
    for depth in (2, 1):
        rows = below[(below[DEPTH] == depth) & (below["ratio"] >= _NAMED * share)]
        rows = rows.sort_values("ratio", ascending=False, kind="stable").head(_MOST_NAMES)
        if rows["ratio"].sum() > named[1] and named[1] < share / 2:
            named = [named_cause(row) for _, row in rows.iterrows()], float(rows["ratio"].sum())
    if not named[0]:  # no cause is large: the largest one, if it takes a part of the step that is worth a look
        rows = below[(below[DEPTH] == 1) & (below["ratio"] >= _LEAST)].nlargest(1, "ratio")
        named = [named_cause(row) for _, row in rows.iterrows()], float(rows["ratio"].sum())
    return named


def named_cause(row: pd.Series) -> Message:
    """Return a cause with its share and place. ``row`` has the columns ``cause``, ``ratio`` and ``place``."""
    where = row["place"]
    text = (
        mark("{name} ({share:ratio})")
        if pd.isna(where) or where == row["cause"]
        else mark("{name} ({share:ratio}, in {where})")
    )
    name = message(_PHRASES[row["cause"]]) if row["cause"] in HOST_WORK else cut(row["cause"], _LENGTH)
    return message(text, name=name, share=float(row["ratio"]), where=where)
