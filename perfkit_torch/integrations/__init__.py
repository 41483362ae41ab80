"""Callbacks for training frameworks on top of PyTorch. Each module imports its framework."""
