"""Steps: how long they take, and what they are spent on."""
