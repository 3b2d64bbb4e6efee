"""Transactional ids of a simulated cluster: coordinators, logs of data, producers, and what is checked."""
