"""Where does the difference between two steps come from? Trees, causes and sections that sum to it."""

from __future__ import annotations

from perfkit_core.compare.attribute.attribute import attribute

__all__ = ["attribute"]
