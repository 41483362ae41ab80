"""Where does the difference between two steps come from? Trees, causes and sections that sum to it."""

from perfkit_core.comparison.attribution.attribute import attribute

__all__ = ["attribute"]
