"""The rules of the member side: pure state machines, performed by the client, the workers and the simulator."""
