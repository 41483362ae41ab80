"""``perfkit verify`` adds this folder to ``PYTHONPATH``, so that the measured Python processes time their steps."""
