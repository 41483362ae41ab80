"""perfkit_core.compare.attribute"""
