"""The consumers: what was read waits here, is handed to handlers or given when asked for, and is counted as done."""
