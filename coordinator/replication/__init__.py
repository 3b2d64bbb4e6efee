"""What nodes of a cluster say to each other: the door, the link to another node's, and their fetch sessions.

The rules are `coordinator.replication.protocol`'s. Imported in cluster mode only.
"""
