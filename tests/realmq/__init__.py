"""The real Apache RocketMQ 5.4.0 for tests and benches: its servers, its Java clients, its admin tool.

::

    from tests.realmq import JavaHost, RealCluster

    with RealCluster(brokers=2) as cluster, JavaHost() as java:
        member = java.push(cluster.namesrv, "group", "orders", begin=Begin.FIRST)
        java.producer(cluster.namesrv).send([Message("orders", b"...")])
        member.wait_for(1)[0].message.body                          # b"..."
        print(java.mqadmin("clusterList", "-n", cluster.namesrv))

The Java clients take any name server, so they test the embedded broker as well. All of it needs Java 17 (a JDK)
and Maven, which brings the jars into the user's cache folder once; where one of them is missing, the first use
raises :class:`Unavailable`, whose text says what to install. No JVM outlives the process that started it.

| file | what it holds |
| --- | --- |
| ``kit.py`` | Java, Maven, the jars, our compiled Java classes |
| ``jvm.py`` | one JVM process |
| ``cluster.py`` | :class:`RealCluster`: a name server and brokers |
| ``proxy.py`` | :class:`RealProxy`: RocketMQ's proxy in front of a cluster |
| ``host.py`` | :class:`JavaHost`: a JVM that plays clients and runs ``mqadmin`` |
| ``clients.py`` | :class:`JavaMember`, :class:`JavaProducer`, :class:`JavaTransactions`: the clients in it |
| ``java/`` | the Java side of ``host.py`` |
"""

from tests.realmq.clients import Flood, JavaMember, JavaProducer, JavaTransactions, Received, Total
from tests.realmq.cluster import RealCluster
from tests.realmq.host import JavaError, JavaHost
from tests.realmq.kit import Unavailable
from tests.realmq.proxy import RealProxy

__all__ = [
    "Flood",
    "JavaError",
    "JavaHost",
    "JavaMember",
    "JavaProducer",
    "JavaTransactions",
    "RealCluster",
    "RealProxy",
    "Received",
    "Total",
    "Unavailable",
]
