"""What a page shows for a moment stays until the test has looked: a busy machine may look up later than that."""

from __future__ import annotations

from typing import Any


def hold(page: Any) -> None:
    """From now on the timers of the page wait for :func:`release`."""
    page.evaluate("() => { window.held = []; window.setTimeout = (done) => window.held.push(done); }")


def release(page: Any) -> None:
    """The timers that were set since fire."""
    page.evaluate("() => { for (const done of window.held.splice(0)) done(); }")
