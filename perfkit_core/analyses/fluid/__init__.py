"""The report of Paddle 1.x (``--view fluid``), for every framework: head, overhead, copies, events."""

from __future__ import annotations

from perfkit_core.analyses.fluid import events, head, memcpy, overhead

VIEWS = (head.VIEW, overhead.VIEW, memcpy.VIEW, events.VIEW)
