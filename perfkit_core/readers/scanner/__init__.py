"""perfkit_core.readers.scanner"""
