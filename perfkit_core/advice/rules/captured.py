"""Rule 2: a compiled or captured region is given numbers from the host, copied in every time."""

from __future__ import annotations

import re
from typing import Final

import numpy as np

from perfkit_core import nesting
from perfkit_core.advice.evidence.transfers import Transfers, transfers
from perfkit_core.advice.facts import Facts
from perfkit_core.advice.model import Candidate
from perfkit_core.advice.rules.phrases import counted, each_period, part, verb
from perfkit_core.language import in_english, say
from perfkit_core.plugins.contracts import Rule
from perfkit_core.replay.edits.removal import Remove
from perfkit_core.replay.edits.unblocking import Unblock
from perfkit_core.replay.edits.uncertain import InCases
from perfkit_core.replay.quantity import Case
from perfkit_core.schema import NESTED_KINDS, RUNTIME
from perfkit_core.trace import BoolArray, Trace

_REGION: Final = re.compile(
    r"compiled|run_program|cuda_?graph|graph_?replay|program_interpreter|interpreter_?core|standalone_?executor",
    re.IGNORECASE,
)
"""What frameworks call a region that was compiled or captured as a whole."""


def host_tensors(facts: Facts) -> list[Candidate]:
    """Rule 2: few bytes are copied to the device inside compiled code."""
    facts.need_device()
    inside = nesting.lies_in(facts.trace.ints("parent"), regions(facts.trace))
    found = transfers(facts)
    few = (found.bytes >= 0) & (found.bytes <= facts.thresholds.tiny_bytes)
    found = found.only(~found.to_host & few & inside[found.call])
    return [_candidate(facts, found)] if len(found) else []


def regions(trace: Trace) -> BoolArray:
    """True for host events that are compiled or captured code, shape (rows,)."""
    names = trace.codes("name")
    named = names.lookup(np.array([bool(_REGION.search(name)) for name in names.values], np.bool_), False)
    found: BoolArray = named & trace.host & trace.rows("kind", *(NESTED_KINDS - {RUNTIME}))
    return found


def _candidate(facts: Facts, found: Transfers) -> Candidate:
    trace = facts.trace
    rows = found.owner
    spent, each = facts.per_step(int(trace.ints("dur_ns")[found.everything].sum())), facts.per_step(len(found))
    names = trace.codes("name")
    region = nesting.outermost(trace.ints("parent"), regions(trace))[found.call[0]]
    name = names.values[names.codes[region]]
    return Candidate(
        say(
            "{counted} of the host {verb} copied to the device {period} inside {name}: {part}, and such copies "
            "keep it from being captured",
            counted=counted(each, in_english("number"), in_english("numbers")),
            verb=verb(each, "is", "are"),
            period=each_period(facts),
            name=name,
            part=part(facts, spent),
        ),
        evidence={
            "copies_per_step": facts.per_step(len(found)), "copies_ns": round(spent), "step_ns": facts.step_ns,
            "region": name,
        },
        rows=rows,
        edits=(
            Unblock(found.call),
            Remove(found.sync[found.sync >= 0], below=False),
            InCases(Remove(found.everything), (Case.SHORT, Case.LIKELY)),
        ),
        preconditions=(say("few bytes are copied"), say("the copy is launched inside compiled code")),
        risks=(say("a number that is part of compiled code is compiled again when it changes"),),
        direction="to device",
        fill={"region": name},
    )  # fmt: skip


RULES: Final = (Rule("host-tensor-in-graph", 2, 1, "Keep host tensors out of compiled code", host_tensors),)
