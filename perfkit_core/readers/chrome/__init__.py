"""perfkit_core.readers.chrome"""
