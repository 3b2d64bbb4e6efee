"""Stand-ins with behaviour: memory, faults and crashes instead of disks and clocks."""
