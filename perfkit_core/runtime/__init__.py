"""perfkit_core.runtime"""
