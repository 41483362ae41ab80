"""The fast reader of Chrome-trace events: one compiled pass over the bytes, straight into columns.

It takes what the profilers usually write and hands everything else (events, or whole stretches of the file) to the
reference in ``sources.chrome`` and ``sources.recorder``. The table is the same, cell for cell, as without it.
"""
