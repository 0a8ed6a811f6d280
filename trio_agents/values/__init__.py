"""What everything is made of: messages, chunks, causes, ids. Pure: no Trio, no files."""
