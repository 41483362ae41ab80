"""``perfkit verify``: measures whether a change saves time, and whether the predicted saving was right."""
