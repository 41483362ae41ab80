"""What of one run corresponds to what of another, level by level, and what corresponds to nothing."""

from __future__ import annotations

from perfkit_core.compare.align.align import Alignment, align

__all__ = ["Alignment", "align"]
