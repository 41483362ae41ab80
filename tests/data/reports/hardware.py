"""TODO"""
FILES = {}
