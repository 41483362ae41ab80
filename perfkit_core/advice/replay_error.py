"""How far can the replay of a recording be believed? Of one, and as a table over several."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Identity
from perfkit_core.replay.identity import step_errors, unexplained_ratio
from perfkit_core.replay.stream_waits import untold_waits
from perfkit_core.system.paths import PathLike


def identity(facts: Facts) -> Identity:
    """The replay of the unchanged graph against the recording."""
    unexplained, untold = unexplained_ratio(facts.replay), untold_waits(facts.trace)
    if not len(facts.steps):
        return Identity(None, None, 0, unexplained, untold)
    errors = step_errors(facts.replay, facts.steps)
    return Identity(float(np.median(errors)), float(errors.max()), len(facts.steps), unexplained, untold)


def table(sources: Sequence[PathLike], partial: bool = False) -> pd.DataFrame:
    """A row a source, each a profile of its own: source, events, steps (NA where none were recorded), step_ns (median;
    without steps the whole recording), error_ratio, worst_error_ratio, unexplained_ratio. Raises SourceError."""
    from perfkit_core.readers.load import load

    rows = []
    for source in sources:
        trace = load(source, partial=partial)
        facts = Facts(trace)
        found = identity(facts)
        step_ns = int(np.median(facts.steps.recorded_ns)) if len(facts.steps) else None
        steps = found.steps if facts.has_steps else None
        rows.append((str(source), len(trace), steps, step_ns, found.error, found.worst, found.unexplained))
    names = ["source", "events", "steps", "step_ns", "error_ratio", "worst_error_ratio", "unexplained_ratio"]
    found_table = pd.DataFrame(rows, columns=names)
    return found_table.astype({"steps": "Int64", "step_ns": "Int64"} | dict.fromkeys(names[4:], "Float64"))
