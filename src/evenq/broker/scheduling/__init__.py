"""Messages that are not delivered at once: what waits, where, and who delivers it when it is due.

A message is parked (:mod:`~evenq.broker.scheduling.parked`) in a queue of the store until then. Every second or so the
scheduler (:mod:`~evenq.broker.scheduling.scheduler`) lets delays, timers and transactions deliver some of what is due.
"""
