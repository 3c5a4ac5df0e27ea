"""The store of a broker: RocketMQ's own layout on disk."""
