"""Measured comparison of two commands: is a change better, and was the prediction of its saving right.

``runs`` runs the commands, ``statistics`` compares the runs, ``outcome`` gives the verdict and its report, ``ledger``
stores predictions with their outcomes.
"""
