"""The error of the replay of unchanged recordings: ``perfkit advise --identity``."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from perfkit_core.advice import predict
from perfkit_core.advice.advice import COLUMNS
from perfkit_core.advice.rule_input import RuleInput
from perfkit_core.base.language.messages import mark, say
from perfkit_core.base.language.units import format_ratio
from perfkit_core.base.system.paths import PathLike
from perfkit_core.readers.read_options import DEFAULT, ReadOptions
from perfkit_core.trace.model.columns import share
from perfkit_core.trace.model.columns import text as text_column
from perfkit_core.trace.model.report_data import Report, Section


def identity_report(sources: Sequence[PathLike], options: ReadOptions = DEFAULT) -> Report:
    table = identities(sources, options)
    with_steps, lines = table[table["steps"].notna()], []
    if not with_steps.empty:
        median, worst = float(with_steps["error_ratio"].median()), float(with_steps["worst_error_ratio"].max())
        summary = mark("Recordings with steps: {count}. Median error: {median}; largest error of a step: {worst}.")
        lines = [say(summary, count=len(with_steps), median=format_ratio(median), worst=format_ratio(worst))]
    note = say(
        "Error: relative error of the replayed step time, or of the whole recording if it has no steps. Unexplained: "
        "share of device work that starts later than the recorded events explain; the replay keeps this delay."
    )
    columns = (
        text_column("source", "Source"),
        share("error_ratio", "Error"),
        share("worst_error_ratio", "Largest error"),
        share("unexplained_ratio", "Unexplained"),
    )
    title = say("Replay of unchanged recordings")
    section = Section("identity", title, table, note, lines=tuple(lines), columns=(*COLUMNS, *columns))
    return Report(say("Accuracy of the replay"), (), (section,))


def identities(sources: Sequence[PathLike], options: ReadOptions = DEFAULT) -> pd.DataFrame:
    """Return a table with one row per source. Raises SourceError.

    - ``source``, and its number of ``events`` and ``steps`` (NA if no steps were recorded)
    - ``step_ns``: median step time, or the time of a recording without steps
    - ``error_ratio``, ``worst_error_ratio``: median and largest error of the replay
    - ``unexplained_ratio``: share of device work that starts later than the recorded events explain"""
    from perfkit_core.readers.load import load_all

    rows = []
    for source in sources:
        trace = load_all([source], options)
        facts = RuleInput(trace)
        advices = predict.identity(facts)
        step_ns = int(np.median(facts.steps.recorded_ns)) if len(facts.steps) else None
        steps = advices.steps if facts.has_steps else None
        rows.append((str(source), len(trace), steps, step_ns, advices.error, advices.worst, advices.unexplained))
    names = ["source", "events", "steps", "step_ns", "error_ratio", "worst_error_ratio", "unexplained_ratio"]
    table = pd.DataFrame(rows, columns=names)
    return table.astype({"steps": "Int64", "step_ns": "Int64"} | dict.fromkeys(names[4:], "Float64"))
