"""A data loader that does something at each batch, and otherwise behaves as the loader that it wraps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class WrappedLoader(Generic[Item]):
    """Has the length and the attributes of ``loader``."""

    def __init__(self, loader: Iterable[Item]) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "_loader" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self._loader, name)
