"""Measured processes of peers written in Python."""
