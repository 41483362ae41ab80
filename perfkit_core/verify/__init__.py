"""Does a change do what was said of it? Measured: both commands in turns, in fresh processes, against the noise.

``measure`` runs the commands, ``statistics`` says how far apart they are and how far apart equal runs are, ``verdict``
judges, ``ledger`` keeps what came of it.
"""
