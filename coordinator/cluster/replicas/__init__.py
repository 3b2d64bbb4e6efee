"""All replicas of one node together: what it leads, what it copies, and what it says to the other nodes about them.

Synchronous, like the engine of groups. Who performs it brings the logs (`ports.ReplicaLog`), carries requests and
answers, flushes, and looks at the clock; nothing is decided there.
"""
