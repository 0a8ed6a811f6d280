"""Ownership: lifetimes, scopes, and the three ways to call a listener."""
