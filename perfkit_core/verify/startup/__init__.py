"""perfkit_core.verify.startup"""
