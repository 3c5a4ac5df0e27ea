"""The embedded name server and broker, which real RocketMQ clients use without noticing."""

from evenq.broker.broker import Broker, BrokerSettings
from evenq.broker.cluster import Cluster
from evenq.broker.limits import Limits
from evenq.broker.namesrv import NameServer
from evenq.broker.scheduling.transactions import TransactionSettings

__all__ = ["Broker", "BrokerSettings", "Cluster", "Limits", "NameServer", "TransactionSettings"]
