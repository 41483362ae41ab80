"""What does tiny work cost on this machine? Measured once, kept, and used only where a recording holds no measurement.

``bench`` is what a framework lets be timed, ``measuring`` times it, ``cache`` keeps it, ``known`` gives it to rules.
"""
