"""Operators and labelled ranges: what they cost, what they are made of, how they follow each other."""
