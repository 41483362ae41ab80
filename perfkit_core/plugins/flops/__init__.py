"""FLOPs and bytes of operators from the shapes, types and values of their arguments, and peak rates of devices.

- ``arguments``: the recorded arguments of an operator, as tensors and values, and the work of a call,
- ``matrix``: formulas of matrix products, convolutions, attention and recurrent layers,
- ``vector``: formulas of all other operators,
- ``registry``: formulas of operators, and the work of a recorded call,
- ``peaks``: peak rates of devices, from ``device_peaks.toml``.

A multiply-add counts as two FLOPs. Bytes are the least possible traffic: each input is read once, each result is
written once."""
