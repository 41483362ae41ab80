"""perfkit_core.model"""
