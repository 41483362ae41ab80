"""The built-in rules of advice, one file each, named after its id."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Final

from perfkit_core.plugins.contracts import Rule

_MODULES: Final = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
RULES: Final[tuple[Rule, ...]] = tuple(sorted((module.RULE for module in _MODULES), key=lambda rule: rule.number))
