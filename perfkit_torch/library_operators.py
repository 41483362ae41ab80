"""Operators that do not come from PyTorch: of extension libraries, of compilers, and recorded calls of Python code.

Names of extension operators are as PyTorch records them (``fbgemm::permute_2D_sparse_data``); a pattern stands where a
library has many for one thing. What only runs other operators is a container (perfkit_core.operators.names).
"""

from __future__ import annotations

import functools
import re
from typing import Final

from perfkit_core.operators.fused_kernels import fused_name

_PATTERNS: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        # compilers: what they run has names of its own
        (r"Torch-Compiled Region|TorchDynamo Cache Lookup|Pregraph bytecode|AOTDispatcher Runtime Wrapper|"
         r"CompiledFxGraph|CompiledFunction|torch::jit::.*DifferentiableGraph|CompiledAutograd|"
         r"(?:<forward op>|<backward op>|forward|backward)$", "compiled_region"),
        # reducers of data parallel training
        (r"torch::distributed::reducer::mul_out|torch\.distributed\.ddp\.reducer::copy_bucket", "copy"),
        # embeddings of recommendation models
        (r"(?:\w+::)*(?:split_embedding|dense_embedding|SplitLookup|bounds_check_indices|"
         r"embedding_bag|IntNBitTableBatchedEmbedding|int_nbit_split_embedding|linearize_cache|lru_cache|lxu_cache)",
         "embedding"),
        # what calls a collective or waits for it: counted as communication, but not as one more collective
        (r"(?:All2All|ReduceScatter|AllGather)(?:Base)?_(?:Pooled|Seq)|(?:vllm|_C_custom_ar|sgl_kernel|aiter)::.*"
         r"(?:all_reduce|all_gather|reduce_scatter|all_to_all)", "collective_call"),
        (r"fbgemm::.*[Qq]uantized?To|fbgemm::.*ToFloat$|fbgemm::.*dequant", "dequantize"),
        (r"fbgemm::.*[Qq]uant|_C::.*quant|vllm::.*quant|sgl_kernel::.*quant", "quantize"),
        (r"fbgemm::.*cumsum", "cumsum"),
        (r"fbgemm::.*(?:jagged|dense_to|to_padded)", "pad"),
        (r"(?:fbgemm|fb)::.*(?:permute|gather|index|bucketize|range|offsets|merge_pooled)|"
         r"fbgemm_gpu::Permute", "gather"),
        (r"fb::.*sort", "sort"),
        (r"fb::convex_sum", "sum"),
        # language models
        (r"symm_mem::.*all_reduce", "all_reduce"),
        (r"symm_mem::.*all_gather", "all_gather"),
        (r"symm_mem::.*reduce_scatter", "reduce_scatter"),
        (r"symm_mem::.*mm(?:_|$)", "matmul"),
        (r"symm_mem::.*broadcast", "broadcast"),
        (r"symm_mem::.*(?:barrier|signal)", "barrier"),
        (r"symm_mem::.*all_to_all", "all_to_all"),
        (r"symm_mem::.*_reduce", "reduce"),
        (r"symm_mem::.*(?:memset|stream_write)", "fill"),
        (r"symm_mem::.*(?:get|put|copy)", "copy"),
        (r"\w+::.*(?:moe|expert|topk_softmax|grouped_topk)", "mixture_of_experts"),
        (r"\w+::.*(?:rotary|rope)", "rotary_embedding"),
        (r"\w+::(?:.*reshape_and_cache|concat_and_cache|.*kv_cache|swap_blocks|copy_blocks)", "kv_cache"),
        (r"\w+::.*(?:flash_attn|flash_attention|unified_attention|paged_attention|fmha|varlen_fwd|varlen_bwd|mha_|"
         r"memory_efficient_attention|\battn)", "attention"),
        (r"(?!aten::)\w+::.*rms_?norm", "rms_norm"),
        (r"(?!aten::)\w+::.*layer_?norm", "layer_norm"),
        (r"\w+::(?:silu_and_mul|swiglu|gelu_and_mul)", "swiglu"),
        (r"(?!aten::)\w+::(?:.*_scaled_mm|.*_gemm|gemm.*|cutlass_.*mm)", "matmul"),
        # vision
        (r"torchvision::nms", "nms"),
        (r"torchvision::.*roi_|torchvision::.*roi(?:align|pool)", "roi_align"),
        (r"torchvision::.*deform_conv", "deformable_conv"),
        (r"(?:torchvision|image)::.*(?:decode|encode|read|write)", "file_access"),
    )
)  # fmt: skip


@functools.lru_cache(maxsize=65536)
def library_operator(name: str) -> str | None:
    """Canonical name of an operator that is not PyTorch's own, None where unknown."""
    if name.startswith("triton_"):
        return fused_name(name)
    return next((canonical for pattern, canonical in _PATTERNS if pattern.match(name)), None)
