"""What experiments share: the dataflows of the papers, load, slow sites, and what is watched, in the simulator and on Spark.

It knows no figure of a paper, and not what should come out.
"""
