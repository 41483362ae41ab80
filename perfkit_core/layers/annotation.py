"""What annotating a model means in every framework: hooks that exist only while a profiler records.

An adapter derives :class:`Annotation`. Nothing in here raises into a training: what fails is logged once and the layer
goes unlabelled.
"""

from __future__ import annotations

import abc
import threading
import weakref
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

from perfkit_core.errors import UsageError
from perfkit_core.layers.architecture import Architecture
from perfkit_core.layers.layer_calls import CallLog
from perfkit_core.recording.capture import logger

Model = TypeVar("Model")


class Annotation(abc.ABC, Generic[Model]):
    """The annotation of one model. Ends with :meth:`remove`, at the end of its ``with`` block, or with the model."""

    active: ClassVar[list[Annotation[Any]]]
    """All annotations of the framework that were not removed; each adapter's class has its own list."""

    def __init__(self, model: Model, prefix: str) -> None:
        self.prefix = prefix
        self.log = CallLog()
        self._model = weakref.ref(model, lambda _: self.remove())
        self._handles: list[Any] = []
        self._lock = threading.RLock()  # the model may go, and call us, while we hold it

    @property
    def model(self) -> Model | None:
        """The model, None once it is gone."""
        return self._model()

    @abc.abstractmethod
    def layers(self, model: Model) -> Iterator[tuple[str, Any]]:
        """Path and layer of every layer, the model itself first; a layer that occurs twice under its first path."""

    @abc.abstractmethod
    def hook(self, path: str, layer: Any) -> Iterable[Any]:
        """Install the hooks of a layer; what is returned has ``remove()``."""

    @abc.abstractmethod
    def architecture(self) -> Architecture | None:
        """The layers with the calls seen since the last time; None once the model is gone."""

    def install(self) -> None:
        """Called when a profiler begins to record. Never raises."""
        with self._lock:
            model = self.model
            if model is None or self._handles:
                return
            try:
                for path, layer in list(self.layers(model)):
                    self._handles += self.hook(path, layer)
            except Exception:
                logger.exception("perfkit: the layers of %s could not be labelled", type(model).__name__)

    def uninstall(self) -> None:
        """Called when the profiler stops. Never raises."""
        with self._lock:
            for handle in self._handles:
                try:
                    handle.remove()
                except Exception:
                    logger.exception("perfkit: a hook could not be removed")
            self._handles.clear()

    def remove(self) -> None:
        """Forget the model. May be called again."""
        self.uninstall()
        if self in self.active:
            self.active.remove(self)

    def __enter__(self) -> Annotation[Model]:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def find(active: list[Annotation[Any]], model: Any) -> Annotation[Any] | None:
    """The annotation that the model has already."""
    return next((one for one in active if one.model is model), None)


def choose_prefix(active: list[Annotation[Any]], model: Any, name: str | None) -> str:
    """What the paths of a model begin with: nothing for the first one, the class for others, or the name that is asked
    for. Raises UsageError for a name that another model has."""
    taken = {one.prefix or type(one.model).__name__ for one in active}
    if name is not None:
        if name in taken:
            raise UsageError(f"another annotated model is called {name!r}", "give each model its own name")
        return name
    if all(one.prefix for one in active):
        return ""
    plain = type(model).__name__
    names = (plain if number == 1 else f"{plain}{number}" for number in range(1, len(taken) + 2))
    return next(candidate for candidate in names if candidate not in taken)


def joined(prefix: str, path: str) -> str:
    """The path of a layer as its label tells it; that of the model itself ends with a dot where it has a name."""
    return f"{prefix}.{path}" if prefix else path


def install_all(active: list[Annotation[Any]]) -> None:
    """A profiler begins to record."""
    for one in list(active):
        one.install()


def uninstall_all(active: list[Annotation[Any]]) -> None:
    """A profiler stopped."""
    for one in list(active):
        one.uninstall()


def recorded(active: list[Annotation[Any]]) -> tuple[Architecture, ...]:
    """The annotated models, with the calls since the last time. Never raises: it runs in a handler."""
    found = []
    for one in list(active):
        try:
            model = one.architecture()
        except Exception:
            logger.exception("perfkit: the layers of a model could not be described")
            continue
        if model is not None:
            found.append(model)
    return tuple(found)
