"""The swarm: seeded runs in the simulator, each with a dataflow, a topology, a load and faults of its own, checked at every step."""
