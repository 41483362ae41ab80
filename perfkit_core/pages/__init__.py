"""The contents of the HTML pages of a profile, of its advice, and of the architecture of a model."""
