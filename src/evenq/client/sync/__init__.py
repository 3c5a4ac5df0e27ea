"""The sync surface, made of the async one."""
