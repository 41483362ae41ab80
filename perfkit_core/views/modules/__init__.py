"""Layers of the model: the cost of each, as a tree."""
