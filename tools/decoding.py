"""Rows per second of one thread: messages of Avro here, and the same rows as lines of JSON in Spark's JVM, by turns: tools/decoding.py."""

from __future__ import annotations

import io
import json
import statistics
import time

import fastavro
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from evenflow.sources.avro import AvroDecoder, columns_of, record_of

SCHEMA = {
    "type": "record", "name": "r", "fields": [
        {"name": "id", "type": "long"}, {"name": "key", "type": "string"}, {"name": "price", "type": ["null", "double"]},
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}}, {"name": "n", "type": "int"},
    ],
}  # fmt: skip
DDL = "id bigint, key string, price double, ts timestamp, n int"
ROWS, TURNS, BATCH = 400_000, 7, 8_192


def main() -> None:
    messages, lines = [], []
    parsed = fastavro.parse_schema(SCHEMA)
    for i in range(ROWS):
        out = io.BytesIO()
        row = {"id": i, "key": f"key-{i % 1000}", "price": i * 0.5, "ts": 1_700_000_000_000_000 + i, "n": i % 100}
        fastavro.schemaless_writer(out, parsed, row)
        messages.append(out.getvalue())
        lines.append((json.dumps({**row, "ts": f"2024-01-01T00:00:00.{i:06d}Z"}),))
    record = record_of(json.dumps(SCHEMA), "tool")
    decoder = AvroDecoder(json.dumps(SCHEMA), columns_of(record, "tool"), None)
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    frame = spark.createDataFrame(lines, "value string").coalesce(1).cache()
    frame.count()
    ratios, ours, theirs = [], [], []
    for turn in range(TURNS + 2):
        begun = time.perf_counter()
        for at in range(0, ROWS, BATCH):
            assert decoder.rows(messages[at : at + BATCH]) is not None
        avro = ROWS / (time.perf_counter() - begun)
        begun = time.perf_counter()
        frame.select(F.from_json("value", DDL).alias("r")).select("r.*").write.format("noop").mode("overwrite").save()
        jvm = ROWS / (time.perf_counter() - begun)
        if turn >= 2:  # The JVM compiles while it works.
            ours, theirs, ratios = [*ours, avro], [*theirs, jvm], [*ratios, avro / jvm]
    spark.stop()
    print(json.dumps({
        "avro_rows_per_s": round(statistics.median(ours)), "spark_json_rows_per_s": round(statistics.median(theirs)),
        "ratio": round(statistics.median(ratios), 2), "ratios": [round(ratio, 2) for ratio in ratios],
    }))  # fmt: skip


if __name__ == "__main__":
    main()
