"""What a recording is: the event table in memory (``model``), on disk (``storage``), and its assembly from recorded
events (``assembly``)."""
