"""Annotated models. While a profiler records, each layer of such a model has hooks that label the calls of the layer.

Each framework implements the hooks in a LayerFramework. An error in a hook is logged and does not reach the training.
The call then has no label."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

from perfkit_core.errors import UsageError
from perfkit_core.recording import signals
from perfkit_core.recording.layer_framework import LayerFramework
from perfkit_core.trace.model.architecture import Architecture, CallLog, to_extra

Model = TypeVar("Model")


class Annotation(Generic[Model]):
    """The annotation of a model. It ends with :meth:`remove`, with its ``with`` block, or when the model is deleted."""

    def __init__(self, framework: LayerFramework, model: Model, prefix: str) -> None:
        self.prefix = prefix
        self._framework = framework
        self.log = CallLog()
        self._model = weakref.ref(model, lambda _: self.remove())
        self._handles: list[Any] = []
        self._lock = threading.RLock()  # reentrant: a thread with the lock may delete the model, which calls remove()

    @property
    def model(self) -> Model | None:
        """The annotated model, or None if it was deleted."""
        return self._model()

    def architecture(self) -> Architecture | None:
        """Return the layers and their calls since the last call of this method, or None if the model was deleted."""
        model = self.model
        if model is None:
            return None
        layers, calls = list(self._layers(model)), self.log.take()
        called = {path: self._framework.fields(layer, calls[path]) for path, layer in layers if path in calls}
        described = tuple(self._framework.described(layers, called))
        return Architecture(self.prefix or type(model).__name__, self._framework.name, described)

    def _layers(self, model: Model) -> Iterator[tuple[str, Any]]:
        """Yield each layer with the path for its label. In a named model, the path begins with the name and a dot."""
        for path, layer in self._framework.named(model):
            yield f"{self.prefix}.{path}" if self.prefix else path, layer

    def install(self) -> None:
        """Install the hooks when a profiler starts to record. Never raises."""
        with self._lock:
            model = self.model
            if model is None or self._handles:
                return
            with signals.guarded(f"the layers of {type(model).__name__} could not be labelled"):
                for path, layer in list(self._layers(model)):
                    self._handles += self._framework.hook(layer, path, self.log)

    def uninstall(self) -> None:
        """Remove the hooks when the profiler stops. Never raises."""
        with self._lock:
            for handle in self._handles:
                with signals.guarded("a hook could not be removed"):
                    handle.remove()
            self._handles.clear()

    def remove(self) -> None:
        """Remove the hooks and end the annotation. A second call does nothing."""
        self.uninstall()
        if self in self._framework.active:
            self._framework.active.remove(self)
        self._framework.unwatch()

    def __enter__(self) -> Annotation[Model]:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def annotate(framework: LayerFramework, model: Model, name: str | None) -> Annotation[Model]:
    """Return the annotation of a model. Create it if there is none.

    The paths of the layers begin with ``name``. If ``name`` is None, the first such model has no prefix. Later
    ones have their class as prefix (``ResNet``, ``ResNet2``). Raises UsageError if another model has the name."""
    active = framework.active
    annotation: Annotation[Model] | None = next((other for other in active if other.model is model), None)
    if annotation is not None:
        return annotation
    used_names = {other.prefix or type(other.model).__name__ for other in active}
    if name in used_names:
        raise UsageError(f"another annotated model is called {name!r}", "give each model a different name")
    if name is not None:
        prefix = name
    elif all(other.prefix for other in active):
        prefix = ""
    else:
        plain = type(model).__name__
        names = [plain, *(f"{plain}{number}" for number in range(2, len(used_names) + 2))]
        prefix = next(candidate for candidate in names if candidate not in used_names)
    annotation = Annotation(framework, model, prefix)
    active.append(annotation)
    framework.watch()
    return annotation


def extra(framework: LayerFramework) -> dict[str, Any]:
    """Return a dict with the entry of ``TraceMeta.extra`` for annotated models. The entry has the layers of each model,
    and the layers' calls since this function last ran. The dict is empty if no model is annotated. Never raises."""
    architectures = []
    for annotation in list(framework.active):
        with signals.guarded("the layers of a model could not be described"):
            architecture = annotation.architecture()
            if architecture is not None:
                architectures.append(architecture)
    return to_extra(tuple(architectures))
