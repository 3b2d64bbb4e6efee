"""Who may do what, of all nodes over one Kafka: one compacted partition there, `{cluster}.security`.

starting.py    made once, by who makes the state topic; looked at by all others
log.py         each node reads it as it grows; who changes something owns it first
"""
