"""perfkit_core.compare.align"""
