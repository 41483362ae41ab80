"""Parts of sentences that advice shares: a time as a part of the step, lists of names, counts."""

from __future__ import annotations

from collections.abc import Sequence

from perfkit_core.advice.facts import Facts
from perfkit_core.language import Message, message, say


def several(names: Sequence[str], most: int = 3) -> str:
    """Some names, and how many more there are."""
    rest = len(names) - most
    first = say(", ").join(names[:most])
    return say("{names} and {count} more", names=first, count=rest) if rest > 0 else first


def both(names: Sequence[str]) -> str:
    """All of some names: ``a, b and c``."""
    first, last = say(", ").join(names[:-1]), "".join(names[-1:])
    return say("{names} and {last}", names=first, last=last) if first and last else first or last


def each(has_steps: bool) -> str:
    """What numbers of a recording count for."""
    return say("a step") if has_steps else say("of the whole recording")


def of_step(facts: Facts, spent_ns: float) -> Message:
    """Return ``18.4 ms of the 176 ms step``; a recording without steps counts as one."""
    if facts.has_steps:
        return message("{part:ns} of the {step:ns} step", part=spent_ns, step=facts.step_ns)
    return message("{part:ns} of the {recording:ns} recording", part=spent_ns, recording=facts.step_ns)


def of_busy(facts: Facts, spent_ns: float) -> Message:
    """Return ``18.4 ms of the 90 ms that the device works in a step``."""
    busy = facts.busy_ns
    if facts.has_steps:
        return message("{part:ns} of the {busy:ns} that the device works per step", part=spent_ns, busy=busy)
    return message("{part:ns} of the {busy:ns} that the device works in the recording", part=spent_ns, busy=busy)


def each_step(facts: Facts) -> Message:
    """Return ``per step``: what a count of the recording is divided by."""
    return message("per step") if facts.has_steps else message("in the recording")


def plural_of(count: float) -> int:
    """Return 1 where a count, which may be an average, is shown as 1, else 2: it chooses between two templates."""
    return 1 if f"{count:.3g}" == "1" else 2


def listed(names: Sequence[str], most: int = 3) -> Message:
    """Return the first names, and how many more there are."""
    rest = len(names) - most
    if rest > 0:
        return message("{names:list} and {rest:count} more", names=names[:most], rest=rest)
    return message("{names:and}", names=names)


def numbered_steps(numbers: Sequence[int]) -> Message:
    """Return ``step 3``, or ``steps 3, 5 and 2 more``."""
    names = listed([str(number) for number in numbers], 5)
    return message("step {number}", number=names) if len(numbers) == 1 else message("steps {numbers}", numbers=names)
