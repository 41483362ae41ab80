"""``perfkit verify``: a measured comparison of two commands. It shows whether a change saves time, and whether the
prediction of the saving was right."""
