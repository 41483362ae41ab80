"""Random recordings that a profiler could have made: nested operators, launches, streams, synchronisation and
threads."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.support.events import device, host

_TIME = st.integers(1, 200_000)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("operator"), _TIME, st.integers(0, 3)),
        st.tuples(st.just("launch"), _TIME, st.integers(0, 2)),
        st.tuples(st.just("synchronise"), _TIME, st.just(0)),
        st.tuples(st.just("copy"), _TIME, st.integers(0, 2)),
        st.tuples(st.just("nothing"), _TIME, st.just(0)),
    ),
    max_size=12,
)
"""Actions of the main thread in a step: the action's name, its time in ns, and its nesting depth or stream."""

OTHERS = st.lists(st.tuples(st.integers(2, 3), st.integers(0, 900_000), _TIME), max_size=6)
"""The operators of other threads. Each has a thread, a start and a time in ns."""


class Recording:
    """The events of a simulated machine with three streams, created one after the other. All events have different
    names."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.now = 0
        self.free = dict.fromkeys(range(3), 0)
        self._count = 0

    def step(self, actions: list[tuple[str, int, int]]) -> None:
        """Add one step of the main thread."""
        begin, at = self.now, len(self.rows)
        for word, dur, number in actions:
            getattr(self, word)(dur, number)
        self.now += 10
        number = sum(row["kind"] == "step" for row in self.rows)
        self.rows.insert(at, host(f"step {number}", "step", begin, self.now - begin, step=number))

    def operator(self, dur: int, depth: int) -> None:
        """Add an operator that takes ``dur`` ns, with operators nested inside it."""
        for level in range(depth + 1):
            if dur > 2 * level * 10:
                self._host("operator", self.now + level * 10, dur - 2 * level * 10)
        self.now += dur

    def nothing(self, dur: int, _: int) -> None:
        """Let time pass without an event."""
        self.now += dur

    def launch(self, dur: int, stream: int, kind: str = "kernel", **more: Any) -> int:
        """Add a call of 3 µs and its device work. The work begins 2 µs after the call, or when the stream is free.
        Return when the work ends."""
        begin = max(self.now + 2_000, self.free[stream] + 500)
        number = self._count
        self._host("runtime", self.now, 3_000, correlation=number)
        self.rows.append(device(f"work {number}", kind, begin, dur, number, **more) | {"stream": stream})
        self.free[stream], self.now = begin + dur, self.now + 3_000
        return begin + dur

    def copy(self, dur: int, stream: int) -> None:
        """Add a copy of pageable memory. Its call returns after the copy has ended."""
        end = self.launch(dur, stream, "memcpy", copy_kind="DtoH pageable")
        self.rows[-2]["dur_ns"] = end + 1_000 - self.rows[-2]["start_ns"]
        self.now = end + 1_000

    def synchronise(self, dur: int, _: int) -> None:
        """Wait for all streams."""
        end = max(*self.free.values(), self.now) + 1_500
        self._host("sync", self.now, end - self.now, name="cudaDeviceSynchronize")
        self.now = end

    def others(self, found: list[tuple[int, int, int]]) -> None:
        """Add the operators of other threads. Operators of one thread follow each other."""
        free: dict[int, int] = {}
        for thread, start, dur in sorted(found, key=lambda one: one[1]):
            begin = max(start, free.get(thread, 0))
            self._host("operator", begin, dur, tid=thread)
            free[thread] = begin + dur

    def _host(self, kind: str, start: int, dur: int, name: str | None = None, **more: Any) -> None:
        self.rows.append(host(name or f"{kind} {self._count}", kind, start, dur, **more))
        self._count += 1


@st.composite
def recordings(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw the events of up to four steps."""
    made = Recording()
    for actions in draw(st.lists(ACTIONS, min_size=1, max_size=4)):
        made.step(actions)
    made.others(draw(OTHERS))
    return made.rows
