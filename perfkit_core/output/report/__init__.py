"""Reports: the sections of tables, sentences and charts that renderers format."""

from __future__ import annotations

from typing import Final

DEFAULT_VIEWS: Final = ("causes", "model", "operators")
"""The views of a summary if no view is named."""
BRIEF_ROWS: Final = 10
"""Default maximum number of rows of each table if no view is named, so that the answer fits one screen."""
