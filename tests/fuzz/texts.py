"""Texts that users type: the expressions of options."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from perfkit_core.compare.gate.conditions import parsed
from perfkit_core.errors import PerfkitError
from perfkit_core.measure.verify.runs import Metric
from perfkit_core.plugins.contracts import ViewRequest
from perfkit_core.views.select import accounted
from tests.fuzz.mutation import mutated
from tests.fuzz.target import FindingError, Target
from tests.support.small_trace import small_trace

_WORDS: Final = (
    r"( ) [ ] { } * + ? | . ^ $ \ \d \b (?P<a> (?i) (?= {1000} {0,} - a-z Z-A % > < >= = 3% step_time operators.calls "
    "[aten::mm] ms us KiB µs e9 1e400 nan inf -1 +1 _ 1_000 , .. é 你 \u202e \0 \x1b[31m"
)
_PIECES: Final = (*(word.encode() for word in _WORDS.split(" ")), b"\n", b"\t", b" ", b"\xff")


class OptionText(Target):
    def __init__(self, name: str, seeds: Sequence[str], take: Callable[[str], Any]) -> None:
        self.name, self._texts, self._take = name, seeds, take

    @property
    def seeds(self) -> Sequence[bytes]:
        return [text.encode() for text in self._texts]

    def make(self, chance: random.Random) -> bytes:
        return mutated(chance.choice(self.seeds), chance, _PIECES)

    def run(self, data: bytes) -> bool:
        text = data.decode("utf-8", "surrogateescape")  # as Python decodes arguments
        try:
            self._take(text)
        except PerfkitError as error:
            if not error.message:
                raise FindingError("a refusal without a text") from error
            return False
        return True


def targets() -> list[OptionText]:
    trace = small_trace()

    def count(pattern: str) -> None:
        mask = accounted(trace, ViewRequest(pattern=pattern))
        if mask.shape != (len(trace),):
            raise FindingError("a mask of another length")

    conditions = ["step_time > 3%", "operators.self_cpu_ns[aten::mm] > +2ms", "kernels.calls < 5", "overview.x > 1e3"]
    return [
        OptionText("filter", ["aten::.*", "^(add|mul)_?$", "[a-z]+", "Memcpy HtoD"], count),
        OptionText("fail-on", conditions, parsed),
        OptionText("metric", ["step_time", "loss", r"samples/s: (\d+\.\d+)", "throughput"], Metric),
    ]
