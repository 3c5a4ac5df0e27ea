"""Sending: messages packed, queues chosen, tries made, receipts read."""
