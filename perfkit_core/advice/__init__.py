"""Advice on a recording: patterns that cost time, the predicted saving of a change, and a remedy.

- ``rule_input``: what rules read from a recording, and the findings that they return
- ``rules``: one module for each pattern, which detects the pattern and gives the transforms that remove it
- ``thresholds``: numbers of the rules that a user can override
- ``predict``: replays the recording with the transforms
- ``engine``: evaluates all rules and adds the remedies of the framework
- ``reports``, ``explain``, ``ledger``: present the result"""
