"""Descriptions of the steps of inference servers: a side table with one row for each step."""

from __future__ import annotations

from typing import Final

import msgspec
import pyarrow as pa

from perfkit_core.base.language.messages import mark
from perfkit_core.trace.model.schema import Column
from perfkit_core.trace.model.side_table import ROW, SideTable

PREFILL: Final = mark("prefill")
DECODE: Final = mark("decode")
MIXED: Final = mark("mixed")
DENOISE: Final = mark("denoise")
CAPTURE: Final = mark("capture")
KINDS: Final = (PREFILL, DECODE, MIXED, DENOISE, CAPTURE)
"""Kinds of steps. A mixed step computes prompts and continues answers. A capture records a graph of kernels, whose
replays are later steps."""
LARGEST: Final = (1 << 48) - 1
"""Larger numbers in the name of a range are no counts, and their sums would exceed 64 bits."""


class ServingStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server step computes. A field is None if the name of the range does not say it. :data:`TABLE` has the
    meanings."""

    kind: str
    requests: int | None = None
    context_requests: int | None = None
    generation_requests: int | None = None
    tokens: int | None = None
    context_tokens: int | None = None
    generation_tokens: int | None = None
    context_keys: int | None = None
    generation_keys: int | None = None
    time_ns: int | None = None
    gap_ns: int | None = None

    @property
    def plausible(self) -> bool:
        """Whether the kind exists, and all numbers can be counts."""
        counts = (getattr(self, name) for name in COUNTS)
        return self.kind in KINDS and all(count is None or 0 <= count <= LARGEST for count in counts)


COUNTS: Final = ServingStep.__struct_fields__[1:-2]
TABLE: Final = SideTable(
    "server_steps",
    "what the steps of an inference server compute",
    (
        ROW,
        Column("kind", pa.string(), False, "kind of the step: one of " + ", ".join(KINDS)),
        Column("requests", pa.int64(), True, "number of requests; of a capture, its batch size"),
        Column("context_requests", pa.int64(), True, "requests whose prompt is computed"),
        Column("generation_requests", pa.int64(), True, "requests whose answer is continued"),
        Column("tokens", pa.int64(), True, "tokens computed: query lengths, summed over the requests"),
        Column("context_tokens", pa.int64(), True, "tokens of prompts"),
        Column("generation_tokens", pa.int64(), True, "tokens of answers"),
        Column("context_keys", pa.int64(), True, "key lengths of prompts, summed over the requests"),
        Column("generation_keys", pa.int64(), True, "key lengths of answers, summed over the requests"),
        Column("time_ns", pa.int64(), True, "from the end of the previous step to the end of this step"),
        Column("gap_ns", pa.int64(), True, "from the end of earlier steps' device work to the first work of this step"),
    ),
    words={"kind": frozenset(KINDS)},
    not_negative=frozenset(ServingStep.__struct_fields__[1:]),
)
