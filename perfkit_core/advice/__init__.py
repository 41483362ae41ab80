"""Advice on a recording: patterns that cost time, the predicted saving of a change, and a remedy.

Each module of ``rules`` detects one pattern in the ``facts`` of a recording, and gives the transforms that remove the
pattern. ``predict`` replays the recording with these transforms. ``engine`` evaluates all rules and adds the remedies
of the framework. ``thresholds`` holds the numbers that a user can override. ``reports``, ``explain`` and ``ledger``
present the result."""
