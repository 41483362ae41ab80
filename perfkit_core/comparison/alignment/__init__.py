"""What of one run corresponds to what of another, level by level, and what corresponds to nothing."""

from perfkit_core.comparison.alignment.align import Alignment, align

__all__ = ["Alignment", "align"]
