"""Regions of a group and those who read them: the port at which a driver offers a sink's epochs, and the subscriber of several such ports.

What follows on what, which leg is asked, and when, is decided in `availability`; here are sockets, threads and clocks. It knows no site,
no plan and no coordinator, and a subscriber needs no Spark.
"""
