"""The framework that records: the one that is given, or the only one that the code uses, or the only imported one."""

from __future__ import annotations

import sys
from collections.abc import Collection

from perfkit_core.errors import UsageError, spelled_like


def chosen_framework(known: Collection[str], given: object, hint: str, used: Collection[str] = ()) -> str:
    """Return the name of a framework. ``given``: the name, or None. ``used``: names of top-level modules that the code
    uses. ``hint`` says how to give a name. Raises UsageError if the name is not in ``known``, or if nothing is given,
    and none or several of ``known`` are used or imported."""
    __tracebackhide__ = True
    if given is not None:
        if given not in known:
            raise UsageError(f"unknown framework {given!r}", spelled_like(str(given), known))
        return str(given)
    of_code = sorted({*used}.intersection(known))
    names = of_code or sorted(name for name in known if name in sys.modules)
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageError("no framework is imported", hint)
    raise UsageError(f"{' and '.join(names)} are {'used' if of_code else 'imported'}", hint)
