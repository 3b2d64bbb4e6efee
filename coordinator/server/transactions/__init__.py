"""The transactions of a node: a second engine, for transactional ids, and the markers that end transactions."""
