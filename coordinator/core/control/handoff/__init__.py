"""An old owner drains, a new one warms up: hand-over of partitions in KIP-848 groups."""
