"""evenq: RocketMQ load balancing in Python."""
