"""Callbacks for training loops on top of PaddlePaddle."""
