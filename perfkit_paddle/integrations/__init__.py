"""Callbacks for training loops that use PaddlePaddle."""
