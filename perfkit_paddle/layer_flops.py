"""FLOPs of one call of a Paddle layer, by its class: what the core's formulas need, from the layer's attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from paddle import nn
from paddle.nn.layer.conv import _ConvNd
from paddle.nn.layer.rnn import RNNBase

from perfkit_core.layers import layer_flops
from perfkit_core.layers.layer_calls import Flops, Signature, products

_TRANSPOSED: Final = (nn.Conv1DTranspose, nn.Conv2DTranspose, nn.Conv3DTranspose)
_GATES: Final = {"LSTM": 4, "GRU": 3}


def of_call(layer: Any, call: Signature) -> Flops:
    """Own FLOPs. Paddle's layers without a matrix product have none; what a user's layer computes itself is unknown."""
    formula = next((made for cls, made in _FORMULAS if isinstance(layer, cls)), None)
    if formula is not None:
        return formula(layer, call)
    return Flops(0, 0) if type(layer).__module__.startswith("paddle.nn.") else Flops(None, None)


def _linear(layer: Any, call: Signature) -> Flops:
    return products(call, layer_flops.linear(call.inputs[0].shape, layer.weight.shape[1]))


def _bilinear(layer: Any, call: Signature) -> Flops:
    outputs, _, second = layer.weight.shape
    return Flops(layer_flops.bilinear(call.inputs[0].shape, second, outputs), None)


def _convolution(layer: Any, call: Signature) -> Flops:
    """The weights of a transposed one begin with its inputs, those of the others with their outputs; then come the
    channels of a group on the other side, and the kernel."""
    positions = call.inputs[0] if isinstance(layer, _TRANSPOSED) else call.outputs[0]
    channels, *kernel = layer.weight.shape[1:]
    return products(call, layer_flops.convolution(positions.shape, channels, kernel))


def _attention(layer: Any, call: Signature) -> Flops:
    """Scores and weighted sum; the projections, which make the factors want gradients, are layers of their own."""
    query, key = call.inputs[0].shape, call.inputs[min(1, len(call.inputs) - 1)].shape
    keys = key[1] if len(key) == 3 else query[1]
    forward = layer_flops.attention((*query[:2], layer.embed_dim), keys)
    trained = any(not p.stop_gradient for p in layer.parameters())
    return Flops(forward, 2 * forward if call.input_gradient or trained else 0)


def _recurrent(layer: Any, call: Signature) -> Flops:
    tokens = call.inputs[0].shape[0] * call.inputs[0].shape[1]
    gates, hidden = _GATES.get(layer.mode, 1), layer.hidden_size
    layers, directions = layer.num_layers, layer.num_directions
    forward = layer_flops.recurrent(tokens, gates, layer.input_size, hidden, layers, directions, hidden)
    return Flops(forward, 2 * forward if call.input_gradient and call.weight_gradient else None)


_FORMULAS: Final[tuple[tuple[type, Callable[[Any, Signature], Flops]], ...]] = (
    (nn.Linear, _linear),
    (nn.Bilinear, _bilinear),
    (_ConvNd, _convolution),
    (nn.MultiHeadAttention, _attention),
    (RNNBase, _recurrent),
)
