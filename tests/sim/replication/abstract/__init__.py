"""One unit, three nodes, min 2, in steps drawn at random: the machines of leader, follower and lease with as little
around them as there can be. Each message may be late or lost, each node killed, without power, frozen or cut off at
any step, one disk at a time may go; clocks go at rates of their own."""
