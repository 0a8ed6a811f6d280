"""A durable agent runtime for Trio applications."""
