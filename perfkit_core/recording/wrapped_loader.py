"""A data loader that does something at each batch, and otherwise behaves as the loader that it wraps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")


class WrappedLoader(Generic[Item]):
    """Has the length, the truth value and the attributes of ``loader``. Attributes that are set are set there, so that
    ``loader.epoch = 1`` has an effect. Own attributes of subclasses are those in ``__slots__``."""

    __slots__ = ("__weakref__", "_loader")

    def __init__(self, loader: Iterable[Item]) -> None:
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_loader":  # it is not set while the object is being copied
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name.startswith("__") or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._loader, name, value)
