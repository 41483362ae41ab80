"""``annotate`` and ``describe``: the layers of a Paddle model, in what a profiler records and on their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perfkit_core.layers import annotation
from perfkit_core.layers.annotation import Annotation, Framework
from perfkit_core.layers.architecture import Architecture
from perfkit_paddle import layer_hooks, layer_watch, layers

if TYPE_CHECKING:
    from paddle import nn

__all__ = ["annotate", "describe"]

FRAMEWORK: Final = Framework(
    name="paddle",
    named=layers.named,
    described=layers.described,
    seen=layers.seen,
    hook=layer_hooks.install,
    watch=layer_watch.watch,
    unwatch=layer_watch.unwatch,
)


def annotate(model: nn.Layer, name: str | None = None) -> Annotation[nn.Layer]:
    """Label every call of every layer of ``model``, forward and backward, in what Paddle's profiler records.

    The hooks exist only while a profiler runs; without one a model runs as it would without us. Nothing raises into the
    training. Paths are those of ``named_sublayers()``; ``name`` goes before them, and is the class where another model
    is annotated already. Annotating a model again returns the same handle; its ``remove()`` or the end of its ``with``
    block ends the labels. A ``trace_handler`` keeps parameters, shapes and FLOPs of the layers with the recording,
    which Paddle's profiler itself does not record. Raises UsageError for a name that is taken.
    """
    return annotation.annotate(FRAMEWORK, model, name)


def describe(model: nn.Layer, *example_inputs: Any, **example_keywords: Any) -> Architecture:
    """The tree of layers with parameters, shapes and devices; with example inputs also calls, tensors and FLOPs.

    With inputs the model runs once, without gradients and in eval mode, then has its modes back; FLOPs are by formula
    for Paddle's own layers, and unknown for what a user's layer computes by itself. ``print()`` shows the tree,
    ``to_pandas()`` returns it as a table.
    """
    found = list(layers.named(model))
    called = layers.run(model, found, example_inputs, example_keywords) if example_inputs or example_keywords else {}
    return Architecture(type(model).__name__, FRAMEWORK.name, tuple(layers.described(found, called)))


def extra() -> dict[str, Any]:
    """What the handler keeps of the annotated models in ``TraceMeta.extra``."""
    return annotation.extra(FRAMEWORK)
