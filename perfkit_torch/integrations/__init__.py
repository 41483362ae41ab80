"""Callbacks for training frameworks that use PyTorch. Each module imports its framework."""
