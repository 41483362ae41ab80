"""Sentences on the steps of an inference server, from the table of the view ``serving``."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from perfkit_core.assembly.server_steps import CAPTURE
from perfkit_core.language.messages import Message, mark, message

VIEW = "serving"
_NAMES = {
    "prefill": mark("Serving, prefill"),
    "decode": mark("Serving, decode"),
    "mixed": mark("Serving, prefill with decode"),
    "denoise": mark("Serving, denoising"),
}


def sentences(table: pd.DataFrame | None) -> Iterator[Message]:
    """Yield a sentence for each kind of steps: its batch, its time and its tokens per second. Without the table, or in
    a recording of a training, yield nothing."""
    if table is None or table.empty or "kind" not in table:
        return
    for row in table[table["kind"] != CAPTURE].to_dict("records"):
        known = {name: value for name, value in row.items() if not pd.isna(value)}
        what = message(_NAMES[row["kind"]])
        batch = message("")
        if "requests" in known:
            batch = message(" of {requests:count} requests on average", requests=known["requests"])
            if row["steps"] == 1:
                batch = message(" of {requests:count} requests", requests=known["requests"])
        steps = message("{count} steps{batch}", count=row["steps"], batch=batch)
        if row["steps"] == 1:
            steps = message("1 step{batch}", batch=batch)
        values = {"what": what, "steps": steps, "time": known.get("step_ns"), "busy": known.get("busy_ns")}
        if "step_ns" in known:
            rate = message("")
            if "tokens_per_s" in known:
                rate = message(", {rate:count} tokens/s", rate=known["tokens_per_s"])
            device = message("")
            if "busy_ns" in known and "gap_ratio" in known:
                device = message(
                    ". The device is busy for {busy:ratio} of this time, and idle for {gap:ratio} before the step's "
                    "first work",
                    busy=known["busy_ratio"], gap=known["gap_ratio"],
                )  # fmt: skip
            yield message("{what}: {steps}, {time:ns} per step{rate}{device}.", **values, rate=rate, device=device)
        elif "busy_ns" in known and "tokens" in known:
            text = mark(
                "{what}: {steps} with {tokens:count} tokens, {busy:ns} of device work ({rate:count} tokens/s if the "
                "device never waits)."
            )
            per_s = known["tokens"] / max(known["busy_ns"] * row["steps"], 1) * 1e9
            yield message(text, **values, tokens=known["tokens"], rate=per_s)
        else:
            yield message("{what}: {steps}, {range:ns} per step on the host.", **values, range=row["range_ns"])
