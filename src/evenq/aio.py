"""The async surface: the same names as ``evenq``, to be awaited."""

from evenq.client.admin import Admin
from evenq.client.consume.litepull import LitePullConsumer
from evenq.client.consume.push import PushConsumer
from evenq.client.produce.producer import Producer

__all__ = ["Admin", "LitePullConsumer", "Producer", "PushConsumer"]
