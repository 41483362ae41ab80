"""Would a command write its output over what it reads?"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from perfkit_core.errors import UsageError
from perfkit_core.loading import files_of
from perfkit_core.paths import identity, is_folder, is_remote
from perfkit_core.plugins.manager import get_plugins
from perfkit_core.runs import recognised
from perfkit_core.storage.store import SUFFIX


def check(output: Path | None, sources: Iterable[Path]) -> None:
    """Raises UsageError where ``output`` is one of the sources, or a file that a folder among them is read from.
    Folders in stores are not looked through."""
    if output is None:
        return
    for source in sources:
        if identity(output) == identity(source) or identity(output) in _files(source, output):
            raise _over(output)


def check_below(output: Path | None, folder: Path) -> None:
    """Raises UsageError where ``output`` is a profile below a folder that is looked through."""
    if output is None or is_remote(output) or is_remote(folder) or not output.is_file():
        return
    if Path(identity(folder)) in Path(identity(output)).parents and recognised(output):
        raise _over(output)


def _files(source: Path, output: Path) -> set[str]:
    """What a folder is read from, where the output would be in it."""
    if is_remote(source) or is_remote(output) or not is_folder(source) or not output.is_file():
        return set()
    if Path(identity(output)).parent != Path(identity(source)):
        return set()
    cycles = list(source.glob(f"*{SUFFIX}"))
    return {identity(path) for path in cycles or files_of([source], get_plugins(), partial=True)[0]}


def _over(output: Path) -> UsageError:
    return UsageError(f"{output}: -o would replace what is read", "give the output another name")
