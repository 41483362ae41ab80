"""Predictions of rules from a printed table, when there is no recording to replay. They use costs that were measured
elsewhere. So their method is "prior", and their intervals are wide."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from perfkit_core.advice.rule_input import Assumption, Candidate
from perfkit_core.advice.rules.loader_workers import CONTENTION, HANDOVER_NS, MAKING
from perfkit_core.advice.transfers import HOST_NS, LAUNCH_NS
from perfkit_core.base.language.messages import message
from perfkit_core.replay.transforms import Case, Quantity, value

COPY_NS: Final = Quantity(
    88_000,
    41_000,
    30_000,
    message(
        "estimate: mean of copies of at most 512 bytes that the host waits for, with their operators, without those "
        "above ten times the median, in each of 11 public recordings on devices from V100 to MI300X"
    ),
)
"""The saving per removed copy. The most optimistic value comes first."""
TAKING_TURNS: Final = Quantity(
    0.7,
    0.85,
    1.0,
    "estimate: a thread that reads ahead and the training take turns at the interpreter, which makes both longer; "
    "worker processes do not",
)
"""Factor of the computing time when no thread of the same process makes batches any more."""
ON_HOST: Final = Quantity(
    HOST_NS.low / LAUNCH_NS.mid, HOST_NS.mid / LAUNCH_NS.mid, HOST_NS.high / LAUNCH_NS.mid, HOST_NS.source
)
"""The time of a small operator on the host, divided by its time when it is launched on the device."""
_HOST_ONLY: Final = 0.9
"""If at least this share of an operator's time is host time, the operator is assumed to have no significant device
work."""


def small_operators(step_ns: int, operators_ns: int, copies_gone: int) -> Candidate:
    """Return the candidate of rule 1: operators on few numbers, which take ``operators_ns`` of a step, move to the
    host. The host then no longer waits for ``copies_gone`` copies."""

    def after(case: Case) -> float:
        moved = operators_ns * (1 - value(ON_HOST, case))
        return max(step_ns - moved - copies_gone * value(COPY_NS, case), 0.0)

    return Candidate(
        message(
            "Small operators on the device take {part:ns} of {step:ns}, and {copies} copies that the host waits for.",
            part=operators_ns, step=step_ns, copies=copies_gone,
        ),
        evidence={"operators_ns": operators_ns, "copies": copies_gone, "step_ns": step_ns},
        method="prior",
        after_ns=_cases(after, ON_HOST, COPY_NS),
        assumptions=(
            Assumption("host_factor", ON_HOST, ON_HOST.source), Assumption("copy_ns", COPY_NS, COPY_NS.source),
        ),
        direction="to host",
    )  # fmt: skip


def loader_workers(step_ns: int, loader_ns: int, workers: int) -> Candidate:
    """Return the candidate of rule 10: ``workers`` processes make the batches that the training now makes in
    ``loader_ns`` per step. If a thread reads ahead, which a table does not show, making a batch can take as long as the
    step."""
    computing = step_ns - loader_ns
    made = Quantity(loader_ns, (loader_ns + step_ns) / 2, step_ns, "from the wait for a batch to the whole step")

    def after(case: Case) -> float:
        every = value(made, case) * value(MAKING, case) / workers
        return max(computing * value(CONTENTION, case) * value(TAKING_TURNS, case), every) + value(HANDOVER_NS, case)

    return Candidate(
        message("Each step spends {part:ns} of {step:ns} on making its batch.", part=loader_ns, step=step_ns),
        evidence={"loader_ns": loader_ns, "step_ns": step_ns, "proposed_workers": workers},
        method="prior",
        after_ns=_cases(after, CONTENTION, TAKING_TURNS),
        ceiling_ns=round(step_ns - computing * CONTENTION.low * TAKING_TURNS.low),
        share_ns=loader_ns,
        assumptions=tuple(
            Assumption(name, quantity, quantity.source)
            for name, quantity in (
                ("host_factor", CONTENTION), ("turns_factor", TAKING_TURNS), ("making_factor", MAKING),
                ("batch_ns", made), ("handover_ns", HANDOVER_NS),
            )
        ),
        fill={"workers": f"{workers}"},
    )  # fmt: skip


def host_operator(name: str, step_ns: int, operator_ns: int, host_ratio: float) -> Candidate | None:
    """Return the candidate of rule 9 for an operator whose share of host time is ``host_ratio``. It predicts no saving.
    Return None if the operator has device work."""
    if host_ratio < _HOST_ONLY:
        return None
    return Candidate(
        message(
            "{name} takes {part:ns} of {step:ns}, {ratio:.0%} of it on the host: an operator that has nearly no work "
            "on its device waits for it; its share of the time is not a saving.",
            name=name,
            part=operator_ns,
            step=step_ns,
            ratio=host_ratio,
        ),
        evidence={"operator": name, "operator_ns": operator_ns, "host_ratio": host_ratio, "step_ns": step_ns},
        method="none",
        risks=("only a recording with calls of the device's runtime tells computing on the host from waiting",),
        fill={"operator": name},
    )


def _cases(after: Callable[[Case], float], *made_of: Quantity) -> Quantity:
    low, mid, high = (after(case) for case in Case)
    return Quantity(low, mid, high, "; ".join(dict.fromkeys(str(quantity.source) for quantity in made_of)))
