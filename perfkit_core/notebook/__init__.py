"""Notebooks: results as HTML, and the magic ``%%perfkit``."""

from __future__ import annotations

from typing import Any, Final

from perfkit_core.base.system.packages import later

_SHOWN: Final = {
    ("perfkit_core.trace.model.trace", "Trace"): "trace",
    ("perfkit_core.advice.advice", "Advices"): "advices",
    ("perfkit_core.compare.comparison", "Comparison"): "comparison",
}
"""Module and name of a class → the function of the module ``displays`` that returns the HTML of its objects. Classes
below the renderers cannot have a method for this."""


def register(shell: Any) -> None:
    """Show perfkit's objects as HTML in this IPython shell, and add the magic ``%%perfkit``. No class is imported."""
    from perfkit_core.notebook import magic

    formatter = shell.display_formatter.formatters["text/html"]
    for (module, name), function in _SHOWN.items():
        formatter.for_type_by_name(module, name, later("perfkit_core.notebook.displays", function))
    shell.register_magic_function(magic.perfkit, "cell")
