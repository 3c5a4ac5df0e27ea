"""The client: connections, routes, producers, consumers, administration. asyncio inside.

``evenq`` is its sync surface, ``evenq.aio`` its async one; what is here is reached through them. DESIGN.md has the
modules from the bottom up.
"""
