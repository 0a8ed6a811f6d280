"""What happened: events, the log they form, and everything that can be derived from it."""
