"""Groups of the ZooKeeper era, which rebalance by themselves: this side only watches, and keeps their ledger."""
