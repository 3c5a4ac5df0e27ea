"""The async surface: the same names as ``evenq``, to be awaited."""

from evenq.client.admin import Admin
from evenq.client.litepull import LitePullConsumer
from evenq.client.producer import Producer
from evenq.client.push import PushConsumer

__all__ = ["Admin", "LitePullConsumer", "Producer", "PushConsumer"]
