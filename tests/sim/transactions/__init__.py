"""A simulator of transactions: producers of both levels, a coordinator that dies, logs with transactional rules."""
