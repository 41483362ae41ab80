"""FLOPs of one call of a torch layer, by its class: what the core's formulas need, from the module's attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch import nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from perfkit_core.layers import layer_flops
from perfkit_core.layers.layer_calls import Flops, Signature, products

_GATES: Final = {"LSTM": 4, "GRU": 3}


def of_call(module: nn.Module, call: Signature) -> Flops:
    """Own FLOPs. Torch's layers without a matrix product have none; what a user's module computes itself is unknown."""
    formula = next((made for cls, made in _FORMULAS if isinstance(module, cls)), None)
    if formula is not None:
        return formula(module, call)
    return Flops(0, 0) if type(module).__module__.startswith("torch.nn.modules.") else Flops(None, None)


def _linear(module: Any, call: Signature) -> Flops:
    return products(call, layer_flops.linear(call.inputs[0].shape, module.out_features))


def _bilinear(module: Any, call: Signature) -> Flops:
    return Flops(layer_flops.bilinear(call.inputs[0].shape, module.in2_features, module.out_features), None)


def _convolution(module: Any, call: Signature) -> Flops:
    shape, channels = call.outputs[0].shape, module.in_channels // module.groups
    return products(call, layer_flops.convolution(shape, channels, module.kernel_size))


def _transposed(module: Any, call: Signature) -> Flops:
    shape, channels = call.inputs[0].shape, module.out_channels // module.groups
    return products(call, layer_flops.convolution(shape, channels, module.kernel_size))


def _attention(module: Any, call: Signature) -> Flops:
    """Projections of query, key and value, scores, weighted sum and the projection of the result."""
    query, key, value = (one.shape for one in (call.inputs * 3 if len(call.inputs) == 1 else call.inputs)[:3])
    length = key[-2] if module.batch_first or len(key) == 2 else key[0]
    width = module.embed_dim
    projections = sum(layer_flops.linear(shape, width) for shape in (query, key, value, query))
    return products(call, projections, layer_flops.attention(query, length))


def _recurrent(module: Any, call: Signature) -> Flops:
    shape = call.inputs[0].shape
    tokens = shape[0] if len(shape) == 2 else shape[0] * shape[1]
    gates = _GATES.get(module.mode, 1)
    hidden, directions = module.hidden_size, 2 if module.bidirectional else 1
    output = module.proj_size or hidden
    forward = layer_flops.recurrent(tokens, gates, module.input_size, hidden, module.num_layers, directions, output)
    return Flops(forward, 2 * forward if call.input_gradient and call.weight_gradient else None)


_FORMULAS: Final[tuple[tuple[type, Callable[[Any, Signature], Flops]], ...]] = (
    (nn.Linear, _linear),
    (nn.Bilinear, _bilinear),
    (_ConvTransposeNd, _transposed),
    (_ConvNd, _convolution),
    (nn.MultiheadAttention, _attention),
    (nn.RNNBase, _recurrent),
)
