"""Being in a consumer group: who is in it, whose queue it is, hand-over, and offsets."""
