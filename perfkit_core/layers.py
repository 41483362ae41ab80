"""Layers of a model: what they are, which events belong to them, how their calls are labelled."""
