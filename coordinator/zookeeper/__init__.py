"""What Muster keeps in, and reads from, a real ZooKeeper: the only room that knows kazoo."""
