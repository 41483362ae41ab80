"""perfkit_core.renderers.html"""
