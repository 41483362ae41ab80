"""Sentences on the steps of an inference server, from the table of the view ``serving``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import pandas as pd

from perfkit_core.base.language.messages import Message, mark, message, plural
from perfkit_core.trace.model.serving_step import CAPTURE, DECODE, DENOISE, MIXED, PREFILL

VIEW: Final = "serving"
_NAMES: Final = {
    PREFILL: mark("Serving, prefill"),
    DECODE: mark("Serving, decode"),
    MIXED: mark("Serving, mixed prefill and decode"),
    DENOISE: mark("Serving, denoising"),
}


def sentences(table: pd.DataFrame | None) -> Iterator[Message]:
    """Yield sentences on each step kind: its batch, its time, its tokens per second, and how busy the device is.
    Without the table, or in a recording of a training, yield nothing."""
    if table is None or table.empty or "kind" not in table:
        return
    for row in table[table["kind"] != CAPTURE].to_dict("records"):
        numbers = {str(name): value for name, value in row.items() if not pd.isna(value)}
        values = {"steps": _steps(numbers), "time": _time(numbers)}
        if "step_ns" in numbers and "busy_ns" in numbers:
            device = message(
                "The device is busy for {busy:ratio} of the step time. For {gap:ratio} it waits for the next step to "
                "start.",
                busy=numbers["busy_ratio"], gap=numbers.get("gap_ratio", 0.0),
            )  # fmt: skip
            yield message("{steps} {time} {device}", **values, device=device)
        else:
            yield message("{steps} {time}", **values)


def _steps(numbers: Mapping[str, Any]) -> Message:
    values = {"what": message(_NAMES[numbers["kind"]]), "requests": numbers.get("requests")}
    if "requests" not in numbers:
        return plural("{what}: {n:count} step.", "{what}: {n:count} steps.", numbers["steps"], **values)
    return plural(
        "{what}: {n:count} step with {requests:count} requests.",
        "{what}: {n:count} steps with {requests:count} requests on average.",
        numbers["steps"], **values,
    )  # fmt: skip


def _time(numbers: Mapping[str, Any]) -> Message:
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
