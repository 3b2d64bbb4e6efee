"""The controller: who leads what, decided by one node at a time, and written to ZooKeeper before anybody hears of it.

`machine.Controller.step(event, now_ms)` is all of it; the events are in `events`, what it asks for in `effects`.
"""
