"""Prediction by replay: a recording as a graph of dependencies that can be transformed and executed again.

A node is a stretch of time of a host thread or a piece of device work. An edge says that a node starts no earlier than
a lag after another. The unchanged graph repeats the recording; the difference between the steps of a transformed graph
and the recorded ones is the prediction.

``build`` makes the graph of a trace, of ``host_segments``, ``device_work``, ``waits``, ``batches`` and ``joint_ranks``.
``graph`` holds and plays it, ``transforms`` changes it, ``played_steps`` returns the times of steps and how well the
unchanged graph repeats the recording.
"""
