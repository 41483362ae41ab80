"""Which packages are libraries, wherever a recording is read? Those that trainings commonly call."""

from __future__ import annotations

from typing import Final

KNOWN: Final = frozenset(
    {
        "accelerate", "aiohttp", "aiter", "albumentations", "apex", "av", "bitsandbytes", "colossalai", "composer",
        "cv2", "dask", "datasets", "deep_ep", "deep_gemm", "deepspeed", "detectron2", "dgl", "diffusers", "einops",
        "fairscale", "fastai", "fbgemm_gpu", "fla", "flash_attn", "flashinfer", "fsspec", "functorch", "gymnasium",
        "h5py", "huggingface_hub", "hydra", "ignite", "imageio", "jax", "joblib", "keras", "kornia", "liger_kernel",
        "lightning", "lightning_fabric", "matplotlib", "mlflow", "mmcv", "mmengine", "monai", "multiprocess",
        "networkx", "nltk", "numba", "numpy", "omegaconf", "onnx", "onnxruntime", "opt_einsum", "optimum", "paddle",
        "paddleformers", "paddlenlp", "paddlex", "pandas", "peft", "PIL", "polars", "psutil", "pyarrow", "pydantic",
        "pytest", "pytorch_lightning", "ray", "requests", "rich", "safetensors", "scipy", "sentence_transformers",
        "sentencepiece", "sgl_kernel", "sglang", "skimage", "sklearn", "spacy", "streaming", "sympy", "tensorboard",
        "tensordict", "tensorflow", "tiktoken", "timm", "tokenizers", "torch", "torch_geometric", "torch_npu",
        "torch_scatter", "torch_sparse", "torch_xla", "torchao", "torchaudio", "torchdata", "torchmetrics", "torchrec",
        "torchtext", "torchtitan", "torchtune", "torchvision", "tqdm", "transformer_engine", "transformers", "triton",
        "trl", "unsloth", "uvicorn", "visualdl", "vllm", "wandb", "webdataset", "xformers", "xgrammar", "yaml", "zmq",
    }
)  # fmt: skip
