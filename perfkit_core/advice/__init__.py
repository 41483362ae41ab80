"""Advice on a recording: rules that detect costly patterns, predictions by replay, and remedies. ``rules`` find one
pattern each from ``facts``, and name the transform that removes it; ``predict`` replays the transform; ``engine`` puts
rules, predictions and the framework's remedies together; ``thresholds`` is the table of numbers that a user can
override."""
