"""What can be changed in a recording before it is played again: one file a kind of change, all plain data."""
