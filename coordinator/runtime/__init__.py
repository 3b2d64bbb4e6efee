"""Runs the shards of a node: logs, timers, replies held until durable. Synchronous."""
