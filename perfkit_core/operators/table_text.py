"""Tables of an adapter, as text: which native names does a canonical one stand for?

A line is ``canonical: native native …``; lines that are indented go on with the one above.
"""

from __future__ import annotations


def read_table(text: str) -> dict[str, str]:
    """Native name → canonical name. Raises ValueError where a native name stands twice."""
    table: dict[str, str] = {}
    canonical = ""
    for line in text.strip().splitlines():
        if not line[:1].isspace():
            canonical, _, line = line.partition(":")
        for native in line.split():
            if native in table:
                raise ValueError(f"{native} is {table[native]} and {canonical}")
            table[native] = canonical
    return table
