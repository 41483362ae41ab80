"""What if? A recording as a graph of who waited for whom, which can be edited and played again.

A node is a stretch of time of one host thread or one piece of device work; an edge says that one cannot start before
another, and how long after. Played unchanged, every node starts when it was recorded to start; played with an edit, the
difference in the steps is the prediction.

``build`` makes the graph of a trace (``host_segments``, ``device_work``, ``waits``, ``handoffs``, ``joins``,
``ranks``), ``simulate`` plays it, ``steps`` reads the times of steps off it, ``edits`` changes it, ``identity``
measures how well the unchanged graph repeats the recording.
"""
