"""perfkit_core.system"""
