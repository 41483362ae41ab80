"""What annotating a model means in every framework: hooks that exist only while a profiler records.

An adapter says how its framework does it (:class:`Framework`). Nothing in here raises into a training: what fails is
logged once and the layer goes unlabelled.

Floating point operations of one call of a layer, from shapes: matrix products and convolutions, two for each
multiplication with addition. Everything else (biases, norms, activations) counts nothing, as common counters have it.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from perfkit_core.errors import UsageError
from perfkit_core.model.architecture import Architecture, CallLog, Layer, Signature, to_extra
from perfkit_core.system.failures import logger

Model = TypeVar("Model")
Active = list["Annotation[Any]"]
"""The annotations of a framework that were not removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Framework:
    """How layers are found, described and hooked in a framework."""

    name: str
    named: Callable[[Any], Iterable[tuple[str, Any]]]
    """Path and layer of every layer of a model, the model first; a layer that occurs twice under its first path."""
    described: Callable[[Sequence[tuple[str, Any]], Mapping[str, Mapping[str, Any]]], Iterable[Layer]]
    """A Layer for each path and layer, with the fields that its calls tell, by path."""
    seen: Callable[[Any, Counter[Signature]], dict[str, Any]]
    """The fields of a Layer that the counted calls of a layer tell."""
    hook: Callable[[Any, str, CallLog], Iterable[Any]]
    """Installs the hooks of a layer; what is returned has ``remove()``."""
    watch: Callable[[Active], None]
    """From now on annotations are installed whenever a profiler records."""
    unwatch: Callable[[Active], None]
    """Gives the framework its own functions back once nothing is annotated."""
    active: Active = field(default_factory=list)


class Annotation(Generic[Model]):
    """The annotation of one model. Ends with :meth:`remove`, at the end of its ``with`` block, or with the model."""

    def __init__(self, framework: Framework, model: Model, prefix: str) -> None:
        self.prefix = prefix
        self._framework = framework
        self.log = CallLog()
        self._model = weakref.ref(model, lambda _: self.remove())
        self._handles: list[Any] = []
        self._lock = threading.RLock()  # the model may go, and call us, while we hold it

    @property
    def model(self) -> Model | None:
        """The model, None once it is gone."""
        return self._model()

    def architecture(self) -> Architecture | None:
        """The layers with the calls seen since the last time; None once the model is gone."""
        model = self.model
        if model is None:
            return None
        found, calls = list(self._layers(model)), self.log.take()
        called = {path: self._framework.seen(layer, calls[path]) for path, layer in found if path in calls}
        layers = tuple(self._framework.described(found, called))
        return Architecture(self.prefix or type(model).__name__, self._framework.name, layers)

    def _layers(self, model: Model) -> Iterator[tuple[str, Any]]:
        for path, layer in self._framework.named(model):
            yield joined(self.prefix, path), layer

    def install(self) -> None:
        """Called when a profiler begins to record. Never raises."""
        with self._lock:
            model = self.model
            if model is None or self._handles:
                return
            try:
                for path, layer in list(self._layers(model)):
                    self._handles += self._framework.hook(layer, path, self.log)
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
        if self in self._framework.active:
            self._framework.active.remove(self)
        self._framework.unwatch(self._framework.active)

    def __enter__(self) -> Annotation[Model]:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def annotate(framework: Framework, model: Model, name: str | None) -> Annotation[Model]:
    """The annotation that a model has already, or a new one. Raises UsageError for a name that another model has."""
    active = framework.active
    found = next((one for one in active if one.model is model), None)
    if found is None:
        found = Annotation(framework, model, choose_prefix(active, model, name))
        active.append(found)
        framework.watch(active)
    return found


def extra(framework: Framework) -> dict[str, Any]:
    """What a handler keeps of the annotated models in ``TraceMeta.extra``."""
    return to_extra(recorded(framework.active))


def choose_prefix(active: Active, model: Any, name: str | None) -> str:
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


def install_all(active: Active) -> None:
    """A profiler begins to record."""
    for one in list(active):
        one.install()


def uninstall_all(active: Active) -> None:
    """A profiler stopped."""
    for one in list(active):
        one.uninstall()


def recorded(active: Active) -> tuple[Architecture, ...]:
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


def linear(input_shape: Sequence[int], outputs: int) -> int:
    """A matrix product with the last dimension of the input, to ``outputs`` features."""
    return 2 * math.prod(input_shape) * outputs


def bilinear(first_shape: Sequence[int], second_features: int, outputs: int) -> int:
    """x1ᵀ·A·x2 for each of ``outputs`` matrices A."""
    return 2 * math.prod(first_shape) * second_features * outputs


def convolution(positions: Sequence[int], channels: int, kernel: Sequence[int]) -> int:
    """``positions``: shape of the output (transposed: of the input), channels included. ``channels``: those of one
    group on the other side."""
    return 2 * math.prod(positions) * channels * math.prod(kernel)


def attention(query: Sequence[int], keys: int) -> int:
    """Scores and weighted sum of all heads together. ``query``: shape (batch, length, width) after projection;
    ``keys``: how many positions each query sees."""
    return 4 * math.prod(query) * keys


def recurrent(tokens: int, gates: int, inputs: int, hidden: int, layers: int, directions: int, output: int) -> int:
    """``tokens``: batch × length. The layers above the first see the outputs of all directions; ``output`` is what one
    direction puts out (``hidden``, if it is not projected)."""
    first = gates * hidden * (inputs + output)
    others = gates * hidden * (directions * output + output) * (layers - 1)
    projected = hidden * output * layers if output != hidden else 0
    return 2 * tokens * directions * (first + others + projected)
