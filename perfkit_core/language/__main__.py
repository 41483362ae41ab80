"""``python -m perfkit_core.language``: brings the catalogues up to date with the code. For who develops perfkit.

``messages.pot`` gets all texts; each ``.po`` keeps its translations, gets what is new without one, and loses what is
said no more.
"""

from __future__ import annotations

from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from perfkit_core.language.current import LANGUAGES
from perfkit_core.language.extract import messages

HERE = Path(__file__).parent
TEMPLATE = HERE / "messages.pot"


def write(catalogue: Catalog, path: Path) -> None:
    """In the order of files, without dates: a change of the texts is all that differs."""
    with path.open("wb") as file:
        write_po(file, catalogue, width=120, omit_header=True, include_lineno=False, ignore_obsolete=True)


def main() -> None:
    """Write all catalogues."""
    found = messages()
    write(found, TEMPLATE)
    for language in LANGUAGES[1:]:
        path = HERE / f"{language}.po"
        kept = read_po(path.open("rb"), charset="utf-8") if path.exists() else Catalog(charset="utf-8")
        kept.update(found, no_fuzzy_matching=True)
        write(kept, path)


if __name__ == "__main__":
    main()
