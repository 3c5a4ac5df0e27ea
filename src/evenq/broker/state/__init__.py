"""What a broker knows beside the messages: topics, groups, offsets, locks and statistics.

These are tables in memory, which handlers change. Topics, settings of groups and offsets are saved, in the files of
:mod:`evenq.broker.store.state_files`; members, locks and counters are not.
"""
