"""How each view merges over ranks, by the rooms of the views."""
