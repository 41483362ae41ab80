"""Tools that know nothing of profiles: the operating system, texts and units, algorithms on arrays, compiled loops, and
names of operators."""
