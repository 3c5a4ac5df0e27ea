"""Pulling messages of a queue: requests that overlap, answers in order, records unpacked."""
