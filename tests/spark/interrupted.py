"""A program that is interrupted at a moment of its life; run by test_interrupt.py. Prints `at MOMENT`, then goes on for ever."""

from __future__ import annotations

import signal
import sys
import threading

import evenflow as ef
from evenflow.world.spark.cluster.session import embedded_session, stop_session


def main(moment: str, sites: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    if moment == "launching":
        print("at launching", flush=True)
    spark = embedded_session(f"local-cluster[{sites},2,1024]", "evenflow-interrupted", sites_only=True)
    try:
        flow = ef.Dataflow("endless")
        first = threading.Event()
        source = flow.source(ef.sources.generator(rate=1000, keys=8))
        source.group_by("key").agg(n="count(*)").to(ef.sinks.callback(lambda epoch, batch: first.set()))
        if moment == "placing":
            print("at placing", flush=True)
        with ef.Engine(spark, sites=sites) as engine:
            run = engine.start(flow)
            if moment == "starting":
                print("at starting", flush=True)
            first.wait()
            if moment == "running":
                print("at running", flush=True)
            if moment == "stopping":
                print("at stopping", flush=True)
                run.stop()
                run = engine.start(flow)
            run.await_termination()
    finally:
        stop_session(spark)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
