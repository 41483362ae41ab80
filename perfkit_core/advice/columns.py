"""The columns of the tables of advice, of ledgers and of replays of unchanged recordings."""

from __future__ import annotations

from typing import Final

from perfkit_core.model.columns import Column, count, duration, share, text, words

COLUMNS: Final[tuple[Column, ...]] = (
    # of advice
    text("title", "Title"),
    words("severity", "Severity"),
    text("advice", "Advice"),
    duration("saving_ns", "Saving"),
    share("saving_ratio", "Saving"),
    duration("step_ns", "Step"),
    duration("step_p10_ns", "Step p10"),
    duration("step_p90_ns", "Step p90"),
    duration("p10_ns", "P10"),
    duration("p50_ns", "P50"),
    duration("p90_ns", "P90"),
    duration("floor_ns", "Floor"),
    duration("ceiling_ns", "Ceiling"),
    words("method", "Method"),
    words("place", "Place"),
    text("first_step", "First step"),
    text("last_step", "Last step"),
    text("api", "Api"),
    text("rule", "Rule"),
    text("reason", "Reason"),
    text("to_record", "To record"),
    text("combined", "Combined"),
    text("why", "Why"),
    duration("afterwards_ns", "Afterwards"),
    text("after", "After"),
    text("value", "Value", words="sentences"),
    # of ledgers and replays
    text("date", "Date"),
    words("outcome", "Outcome"),
    text("base", "Base"),
    text("change", "Change"),
    share("predicted_saving_ratio", "Predicted saving"),
    share("predicted_low_ratio", "Predicted low"),
    share("predicted_high_ratio", "Predicted high"),
    share("saving_low_ratio", "Saving low"),
    share("saving_high_ratio", "Saving high"),
    share("noise_ratio", "Noise"),
    share("saving_error_ratio", "Saving error"),
    share("step_error_ratio", "Step error"),
    count("records", "Records"),
    text("framework", "Framework"),
    count("verified", "Verified"),
    count("refuted", "Refuted"),
    count("abstained", "Abstained"),
    count("predicted", "Predicted"),
    count("sign_right", "Sign right"),
    share("covered_ratio", "Covered"),
    text("source", "Source"),
    share("error_ratio", "Error"),
    share("worst_error_ratio", "Worst error"),
    share("unexplained_ratio", "Unexplained"),
)
