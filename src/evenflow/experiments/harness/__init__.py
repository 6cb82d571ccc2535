"""What experiments share: the dataflows of the papers, load, slow sites, and what is watched, in the simulator and on Spark."""
