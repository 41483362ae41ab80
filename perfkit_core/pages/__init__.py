"""perfkit_core.pages"""
