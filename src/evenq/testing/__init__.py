"""What tests of applications need: an embedded cluster, and a clock that can be moved."""

from evenq.testing.clock import Clock
from evenq.testing.embedded import EmbeddedCluster, cluster

__all__ = ["Clock", "EmbeddedCluster", "cluster"]
