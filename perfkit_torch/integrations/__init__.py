"""Callbacks for training frameworks on top of PyTorch. Each module needs its framework and imports it."""
