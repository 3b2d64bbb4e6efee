"""What a cluster of nodes keeps in ZooKeeper, and who performs the controller's writes there."""
