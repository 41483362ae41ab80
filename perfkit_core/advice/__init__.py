"""What to change, what it should save, and how sure that is.

``rules`` look for one pattern each, in what ``evidence`` reads out of the recording, and say which edit of it would
remove the pattern; ``predict`` replays the edit; ``advise`` puts rules, predictions and the framework's remedies
together; ``thresholds`` is the one table of numbers that a user can override.
"""
