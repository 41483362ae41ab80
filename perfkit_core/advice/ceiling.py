"""What can no change of a kind save more of? A replay in which what its edits shorten takes no time at all.

Nobody waits for it, either: in the limit of an edit each node takes no longer, and waits for no more, than with the
edit itself, whatever the uncertain numbers are, so that nothing begins later. Two kinds of edits have no limit that
tells anything: data loaded in workers (without its loader a step would still wait for batches to be made, and other
work of the host changes, too) and launches that become one (without them the device would have no work). For these, and
for kinds of edits that are not known here, the number of the rule stands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import singledispatch
from typing import Any

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.step_time import step_ns
from perfkit_core.replay.edits.concurrency import Overlap
from perfkit_core.replay.edits.contract import Edit, edited
from perfkit_core.replay.edits.durations import Insert, Scale
from perfkit_core.replay.edits.gaps import Shorten
from perfkit_core.replay.edits.placement import Move
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.replay.edits.unblocking import Unblock
from perfkit_core.replay.edits.uncertain import InCases

Limit = tuple[Edit, ...] | None


def most_ns(facts: Facts, edits: Sequence[Edit], period: int = 1) -> int | None:
    """What a step becomes shorter by, in ns, in the limit of the edits; None where an edit has none. ``period``: see
    :func:`step_ns`. Raises CyclicGraphError."""
    limits = [limit(edit) for edit in edits]
    if not edits or None in limits:
        return None
    graph = edited(facts.replay, [one for found in limits for one in found or ()])
    return max(facts.step_ns - round(step_ns(facts, graph, period)), 0)


@singledispatch
def limit(edit: Any) -> Limit:
    """The edits that no size of this one goes beyond; None: there are none."""
    return None


@limit.register
def _(edit: Remove) -> Limit:
    return (edit,)


@limit.register
def _(edit: Scale) -> Limit:
    whole = edit.host and edit.device
    return (Remove(edit.rows, edit.below) if whole else replace(edit, factor=0),)


@limit.register
def _(edit: Insert) -> Limit:
    return ()


@limit.register
def _(edit: Overlap) -> Limit:
    return (Scale(edit.rows, 0, device=False),)


@limit.register
def _(edit: Shorten) -> Limit:
    return (replace(edit, factor=0),)


@limit.register
def _(edit: Move) -> Limit:
    gone = () if edit.copies_gone is None else (Remove(edit.copies_gone),)
    return (Remove(edit.rows), *gone)


@limit.register
def _(edit: Unblock) -> Limit:
    return (Remove(edit.rows, below=False),)


@limit.register
def _(edit: InCases) -> Limit:
    return limit(edit.change)
