"""Helpers for a timeline in a browser: a small trace with hostile names, the positions of boxes, and the details
shown."""

from __future__ import annotations

from typing import Any

from perfkit_core.trace.model.trace import Trace
from tests.support.events import device, host, trace
from tests.support.page_moments import drawn

NAMES = (
    "</script><script>document.title = 'broken'</script>",
    '<img src=x onerror="document.title = 1">',
    "right\u202eto left \x07 and 'quotes\"",
    "k" * 1000,
)


def small() -> Trace:
    """Return a trace of two steps of 1 ms. Each step has a launch, its kernel, and one operator for each name in
    ``NAMES``."""
    events = []
    for step in range(2):
        at = 1_000_000 * step
        events.append(host(f"Step#{step}", "step", at, 1_000_000, step=step))
        events += [host(name, "operator", at + 100_000 * (i + 1), 90_000) for i, name in enumerate(NAMES)]
        events.append(host("launch", "runtime", at + 600_000, 10_000, correlation=step + 1))
        events.append(device("kernel_of_step", "kernel", at + 650_000, 200_000, correlation=step + 1))
    return trace(events)


def point(page: Any, name: str) -> tuple[float, float]:
    """Return the position in the window of the middle of the first box with a name."""
    found = page.evaluate(
        """(name) => {
          const one = document.querySelector('.timeline').timeline, { view } = one, { data } = view;
          const box = data.name.findIndex((number) => data.names[number].startsWith(name));
          const lane = view.laneOf(box);
          const place = one.canvas.getBoundingClientRect();
          return [place.x + view.x(data.start_ns[box] + data.dur_ns[box] / 2), place.y + lane.y - view.top + 8];
        }""",
        name,
    )
    return found[0], found[1]


def scrolled(page: Any) -> None:
    """Wait until the timeline has scrolled. It redraws when the browser draws its next frame."""
    for _ in range(100):
        drawn(page)
        if page.evaluate("document.querySelector('.timeline').timeline.view.top > 0"):
            return
    raise AssertionError("the timeline was not scrolled")


def details(page: Any) -> list[str]:
    """Return the lines shown for the selected box."""
    return str(page.locator(".timeline .details").text_content()).split("\n")


def seen(page: Any) -> tuple[float, float]:
    """Return the visible time range in ns: its begin and its duration."""
    found = page.evaluate("(({ from, span }) => [from, span])(document.querySelector('.timeline').timeline.view)")
    return found[0], found[1]
