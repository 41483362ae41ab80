"""``annotate`` and ``describe``: the layers of a torch model, in what a profiler records and on their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from perfkit_core.layers import annotation
from perfkit_core.layers.annotation import Annotation
from perfkit_core.layers.architecture import Architecture, to_extra
from perfkit_torch import layer_hooks, layer_watch, layers

if TYPE_CHECKING:
    from torch import nn

__all__ = ["annotate", "describe"]


def annotate(model: nn.Module, name: str | None = None) -> Annotation[nn.Module]:
    """Label every call of every layer of ``model``, forward and backward, in what torch's profiler records.

    The hooks exist only while a profiler records; without one a model runs as it would without us. Nothing raises into
    the training. Paths are those of ``named_modules()``; ``name`` goes before them, and is the class where another
    model is annotated already. Annotating a model again returns the same handle; its ``remove()`` or the end of its
    ``with`` block ends the labels. A ``trace_handler`` keeps parameters, shapes and FLOPs of the layers with the
    recording. Raises UsageError for a name that is taken.
    """
    active = ModelAnnotation.active
    found = annotation.find(active, model)
    if found is not None:
        return found
    made = ModelAnnotation(model, annotation.choose_prefix(active, model, name))
    active.append(made)
    layer_watch.watch(active)
    return made


def describe(model: nn.Module, *example_inputs: Any, **example_keywords: Any) -> Architecture:
    """The tree of layers with parameters, shapes and devices; with example inputs also calls, tensors and FLOPs.

    With inputs the model runs once, without gradients and in eval mode, then has its modes back; FLOPs are those that
    torch's own FlopCounterMode counts. ``print()`` shows the tree, ``to_pandas()`` returns it as a table.
    """
    found = list(layers.named(model))
    called = layers.run(model, found, example_inputs, example_keywords) if example_inputs or example_keywords else {}
    described = layers.described(found, called)
    return Architecture(type(model).__name__, "torch", tuple(described))


class ModelAnnotation(Annotation["nn.Module"]):
    """See :class:`perfkit_core.layers.annotation.Annotation`."""

    active: ClassVar[list[Annotation[Any]]] = []

    def layers(self, model: nn.Module) -> Iterator[tuple[str, Any]]:
        for path, layer in layers.named(model):
            yield annotation.joined(self.prefix, path), layer

    def hook(self, path: str, layer: Any) -> Iterable[Any]:
        return layer_hooks.install(layer, path, self.log)

    def architecture(self) -> Architecture | None:
        model = self.model
        if model is None:
            return None
        found = list(self.layers(model))
        calls = self.log.take()
        called = {path: layers.seen(layer, calls[path]) for path, layer in found if path in calls}
        return Architecture(self.prefix or type(model).__name__, "torch", tuple(layers.described(found, called)))

    def remove(self) -> None:
        super().remove()
        layer_watch.unwatch(self.active)


def extra() -> dict[str, Any]:
    """What the handler keeps of the annotated models in ``TraceMeta.extra``."""
    return to_extra(annotation.recorded(ModelAnnotation.active))
