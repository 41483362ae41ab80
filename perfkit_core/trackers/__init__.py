"""Experiment trackers: head figures, tables and the page of a run in MLflow, TensorBoard and Weights & Biases."""
