"""What operators and clients ask of a cluster, by any of its nodes (CL-A1): checked here, left in ZooKeeper for the
controller, and answered when this node's image shows what has come of it."""
