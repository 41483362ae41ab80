"""What jobs of continuous integration need besides the commands."""
