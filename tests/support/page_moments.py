"""Stop the timers of a page, so that a text that is shown only briefly stays visible until the test has read it."""

from __future__ import annotations

from typing import Any, Final

_MOST_MS: Final = 5_000
"""The maximum time to wait for the browser to draw. A headless browser sometimes never draws."""


def hold(page: Any) -> None:
    """Hold back the timers of the page until :func:`release` is called."""
    page.evaluate("() => { window.held = []; window.setTimeout = (done) => window.held.push(done); }")


def release(page: Any) -> None:
    """Fire the timers that were set since :func:`hold`."""
    page.evaluate("() => { for (const done of window.held.splice(0)) done(); }")


def drawn(page: Any) -> None:
    """Wait until the browser has drawn the page in its current state."""
    page.evaluate(
        """(most) => new Promise((done) => {
            requestAnimationFrame(() => requestAnimationFrame(done));
            setTimeout(done, most);
        })""",
        _MOST_MS,
    )
