"""What is time called that belongs to no operator, and what a cause of a difference in a sentence or a picture?

In tables such names stand in parentheses, so that nobody takes them for operators.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from perfkit_core.language.messages import mark, say
from perfkit_core.model.schema import ANNOTATION, DATALOADER, MEMORY, OTHER, OVERHEAD, PYTHON, RUNTIME, SYNC

OUTSIDE: Final = mark("(outside operators)")
UNLAUNCHED: Final = mark("(no launch recorded)")
NOTHING: Final = "(nothing recorded)"
NO_PHASE: Final = "(no phase)"
UNTIL_THE_END: Final = mark("(nothing recorded until the end)")
_BEFORE: Final = "(nothing recorded before "
_KINDS: Final[Mapping[str, str]] = {
    DATALOADER: mark("(data loader)"),
    PYTHON: mark("(Python code)"),
    ANNOTATION: mark("(labelled ranges)"),
    RUNTIME: mark("(runtime calls)"),
    SYNC: mark("(waiting for the device)"),
    MEMORY: mark("(allocator)"),
    OVERHEAD: mark("(the profiler itself)"),
    OTHER: mark("(other host events)"),
}
"""Of other kinds the phase tells more than the kind."""


def outside(kind: str) -> str:
    """What host time outside of operators is called, by the kind of its event."""
    return _KINDS.get(kind, OUTSIDE)


def before(name: str) -> str:
    """What time is called in which nothing was recorded, by what comes next ("": the end)."""
    return f"{_BEFORE}{_bare(name)})" if name else UNTIL_THE_END


def label(row: Mapping[Any, Any]) -> str:
    """A cause as people read it: ``matmul, forward, on the device``. ``row`` of
    :func:`~perfkit_core.compare.attribute.causes.causes`."""
    parts = (_subject(row), _phase(row["phase"], row["category"]), _where(row["category"]))
    return say(", ").join(part for part in dict.fromkeys(parts) if part)


def _subject(row: Mapping[Any, Any]) -> str:
    name, family = row["operator"], row["family"]
    if name == UNLAUNCHED and family:
        return say("{family} without a recorded launch", family=_spaced(_bare(family)))
    if name == OUTSIDE and family not in ("", OUTSIDE):
        return say("{family} outside operators", family=_spaced(_bare(family)))
    return _said(name)


def _said(name: str) -> str:
    """A name in parentheses as words; what an operator or event is called stays as it is."""
    if name.startswith(_BEFORE):
        return say("nothing recorded before {name}", name=_bare(name).removeprefix(_BEFORE[1:]))
    if name == OUTSIDE:
        return say("outside operators")
    return _bare(say(name)) if name.startswith("(") else name


def _phase(name: str, category: str) -> str:
    words = {
        "forward": say("forward"),
        "backward": say("backward"),
        "optimizer": say("optimizer"),
        "dataloader": "" if category == "input_wait" else say("data loading"),
    }
    return words.get(name, "")


def _where(category: str) -> str:
    where = {
        "device_compute": say("on the device"),
        "exposed_communication": say("exposed communication"),
        "exposed_copy": say("exposed copy"),
        "input_wait": say("waiting for input"),
        "launch_and_host": say("on the host"),
        "compute": "",  # without devices all is on the host
        "framework": "",
        "idle": "",  # the name says that nothing was recorded
    }
    return where.get(category, _spaced(_bare(say(category))))


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def _bare(name: str) -> str:
    return name[1:-1] if name.startswith(("(", "（")) and name.endswith((")", "）")) else name
