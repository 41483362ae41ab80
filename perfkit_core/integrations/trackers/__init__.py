"""Experiment trackers: summary figures, tables and the page of a run in MLflow, TensorBoard and Weights & Biases."""
