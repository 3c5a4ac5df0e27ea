"""The async surface: the same names as ``evenq``, to be awaited."""

from evenq.client.producer import Producer
from evenq.client.push import PushConsumer

__all__ = ["Producer", "PushConsumer"]
