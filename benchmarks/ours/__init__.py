"""Our own scenarios."""
