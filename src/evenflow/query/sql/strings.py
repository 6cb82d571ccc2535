"""x"""
FUNCTIONS = {}
