"""Runs a core: logs, timers, replies held until durable. Synchronous."""
