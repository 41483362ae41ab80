"""What to change, what it should save, and how sure that is.

``rules`` look for one pattern each and say which edit of the recording would remove it; ``predict`` replays the edit;
``advise`` puts rules, predictions and the framework's remedies together; ``thresholds`` is the one table of numbers
that a user can override.
"""
