"""perfkit_core.algorithms"""
