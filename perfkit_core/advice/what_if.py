"""Predict the step time after changes that the caller chooses, instead of the changes that rules propose. The changes
are applied to the replay of the recording."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from perfkit_core.advice import engine, predict
from perfkit_core.advice.advice import Base, Identity, Prediction
from perfkit_core.advice.explain import transform_text
from perfkit_core.advice.rule_input import Candidate, NotEvaluableError, RuleInput
from perfkit_core.advice.transfers import transfers
from perfkit_core.base.algorithms.arrays import IntArray
from perfkit_core.base.language import units
from perfkit_core.base.system.paths import PathLike
from perfkit_core.errors import UsageError
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.replay import waits
from perfkit_core.replay.transforms import Remove, Scale, Transform, Unblock
from perfkit_core.trace.model.schema import STEP
from perfkit_core.trace.model.trace import Trace
from perfkit_core.views import select

_EXAMPLE: Final = "example: what_if(run, remove='aten::copy_')"


@dataclass(frozen=True, slots=True, repr=False)
class WhatIf:
    """The predicted step time after some changes. Times are in ns per step; a recording without steps is one step."""

    changes: tuple[str, ...]  # each change in English, with the number and the names of the changed events
    prediction: Prediction  # the step time now and after the changes, with its interval from p10 to p90
    identity: Identity  # accuracy of the replay
    base: Base | None  # the step without the profiler, from which the prediction starts
    noise_ns: int | None  # half the width of the 80% interval of the median step time; None for a single step

    def __repr__(self) -> str:
        p = self.prediction
        low, mid, high = (units.format_duration(ns or 0) for ns in (p.p10_ns, p.p50_ns, p.p90_ns))
        share = units.format_ratio(p.saving_ratio or 0)
        return f"<WhatIf {units.format_duration(p.base_ns)} → {mid} ({low} to {high}), saves {share}>"


def what_if(
    source: Trace | PathLike | Sequence[PathLike],
    *,
    remove: str | Iterable[str] = (),
    speed_up: Mapping[str, float] | None = None,
    overlap_copies: bool = False,
    no_syncs: bool = False,
) -> WhatIf:
    """Return the predicted step time after all of these changes together.

    - ``source``: a Trace, or a source that :func:`perfkit_core.load` reads
    - ``remove``: RE2 patterns. Events whose name matches do not take place, nor do the events inside them and the
      device work that these launched. Device work whose own name matches is removed, but not its launch.
    - ``speed_up``: RE2 pattern → factor. The same events take their time divided by the factor, on host and device.
    - ``overlap_copies``: the host no longer waits for copies between host and device
    - ``no_syncs``: calls that synchronise with a device take no time, and nothing waits in them

    Steps are never changed. Events that waited for a changed event wait less. Raises UsageError if a change affects no
    recorded event, for a factor that is not positive, or if the recording cannot be replayed, and SourceError if the
    source cannot be read."""
    facts = engine.rule_input(source, None, get_plugins())
    patterns = [remove] if isinstance(remove, str) else list(remove)
    changes: list[Transform] = [Remove(_rows(facts.trace, pattern)) for pattern in patterns]
    for pattern, factor in (speed_up or {}).items():
        if not 0 < factor < np.inf:
            hint = "2 makes the events twice as fast; use remove for events that take no time"
            raise UsageError(f"the factor {factor:g} of {pattern!r} is not a positive number", hint)
        changes.append(Scale(_rows(facts.trace, pattern), 1 / factor))
    if overlap_copies:
        copies = transfers(facts)
        _need(facts, len(copies), "no copy between host and device was recorded")
        changes += [Unblock(copies.call), Remove(copies.syncs, below=False)]
    if no_syncs:
        syncs = waits.sync_calls(facts.trace)[0]
        _need(facts, len(syncs), "no synchronisation with a device was recorded")
        changes.append(Remove(syncs, below=False))
    if not changes:
        raise UsageError("no change is given", _EXAMPLE)
    return _predicted(facts, changes)


def _predicted(facts: RuleInput, changes: Sequence[Transform]) -> WhatIf:
    try:
        prediction = predict.predict(facts, Candidate("", {}, transforms=tuple(changes)))
        identity, base = predict.identity(facts), predict.base(facts)
    except NotEvaluableError as error:
        raise UsageError(f"{facts.trace.meta.source}: cannot be replayed ({engine.why(error)})") from None
    words = tuple(transform_text(change, facts.trace) for change in changes if len(getattr(change, "rows", ())))
    return WhatIf(words, prediction, identity, base, engine.noise_ns(facts))


def _need(facts: RuleInput, count: int, problem: str) -> None:
    if not count:
        raise UsageError(f"{facts.trace.meta.source}: {problem}", "record a training on a device")


def _rows(trace: Trace, pattern: str) -> IntArray:
    takes_time = ~trace.rows("kind", STEP) & (trace.ints("dur_ns") > 0)
    rows = np.flatnonzero(select.accounted(trace, ViewRequest(pattern=pattern)) & takes_time)
    if not len(rows):
        hint = "the views operators, annotations, kernels and memcpy list the names"
        raise UsageError(f"{trace.meta.source}: no event has a name that matches {pattern!r}", hint)
    return rows
