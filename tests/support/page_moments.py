"""What a page shows for a moment stays until the test has looked: a busy machine may look up later than that."""

from __future__ import annotations

from typing import Any, Final

_MOST_MS: Final = 5_000
"""How long a picture is waited for: now and then a browser without a screen makes none, and what asks for it would wait
for ever. Whatever is not drawn then is missed by the test itself."""


def hold(page: Any) -> None:
    """From now on the timers of the page wait for :func:`release`."""
    page.evaluate("() => { window.held = []; window.setTimeout = (done) => window.held.push(done); }")


def release(page: Any) -> None:
    """The timers that were set since fire."""
    page.evaluate("() => { for (const done of window.held.splice(0)) done(); }")


def drawn(page: Any) -> None:
    """Waits until the browser has drawn the page as it is now."""
    page.evaluate(
        """(most) => new Promise((done) => {
            requestAnimationFrame(() => requestAnimationFrame(done));
            setTimeout(done, most);
        })""",
        _MOST_MS,
    )
