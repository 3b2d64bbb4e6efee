"""A node as one of many: imported where `inter.broker.listeners` is set, and nowhere else."""
