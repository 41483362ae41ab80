"""Quantised, oneDNN and sparse operators → canonical names: their names say the operator and what is fused to it."""

from __future__ import annotations

import re
from typing import Final

from perfkit_torch.operator_tables import TABLE

_RULES: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        ("conv(?:olution)?_?transpose", "conv_transpose"),
        ("embedding", "embedding"),
        ("(?:^|_)q?conv[123]?d?(?:_|$)|convolution", "conv"),
        ("q?linear|matmul|qgemm|(?:^|_)(?:int4|b)?mm(?:_|$)", "matmul"),
        ("lstm|gru|rnn", "rnn"),
        ("batch_norm", "batch_norm"),
        ("layer_norm", "layer_norm"),
        ("(?:group|instance)_norm", "group_norm"),
        ("softmax", "softmax"),
        ("pool", "pool"),
        ("cat$|cat_", "concat"),
        ("leaky_relu", "leaky_relu"),
        ("prelu", "prelu"),
        ("^q?add", "add"),
        ("^q?mul", "multiply"),
        ("relu", "relu"),
        ("dropout", "dropout"),
        ("sigmoid", "sigmoid"),
        ("hardswish", "hardswish"),
        ("elu", "elu"),
        ("dequantize|to_?float", "dequantize"),
        ("quant|qparams", "quantize"),
        ("reorder", "to_sparse"),
    )
)


def quantized_operator(native: str) -> str | None:
    """Canonical name of an operator without its namespace, None where unknown."""
    name = native.partition(".")[0].rstrip("_").removeprefix("_")
    if name in TABLE:
        return TABLE[name]
    return next((canonical for pattern, canonical in _RULES if pattern.search(name.lower())), None)
