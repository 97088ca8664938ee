#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The Parquet files here, and the JSON Lines next to them that each must be read as: NAME-*.parquet is NAME.jsonl.

    pip install pyarrow fastparquet polars duckdb
    python3 tests/unit/source/parquet/write.py

Rows are written with null for what is not there, as Parquet has it, and to JSON Lines without these members.
"""
import itertools
import json
import pathlib

import duckdb
import fastparquet
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).resolve().parent
TEXTS = [{"id": i, "text": text, "more": [i, None]} for i, text in enumerate([
    "", "a", "The quick brown fox", "The quick brown dog", "jumps over", "zwölf Boxkämpfer\n\"jagen\"\t\\",
    "いろはにほへと", "a", "a", "The quick", "🙂🙃", "last"])]
# Of tests/cli/test_data_formats.sh.
LINES = [{"text": f"line {i}, and \"some\" more\nof it", "id": i} for i in range(1, 61)]
PAIRS = [{"prompt": f"{i} + {i} = ", "completion": str(2 * i)} for i in range(20)]
TALKS = [
    {"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"},
                  {"role": "assistant", "content": "Hello.", "weight": 1}]},
    {"messages": [{"role": "user", "content": "One \"two\"?"},
                  {"role": "assistant", "content": "no\nyes", "weight": 0},
                  {"role": "user", "content": "", "train": False},
                  {"role": "assistant", "content": "3", "train": True}],
     "system": "above all"},
    {"messages": [{"role": "assistant", "content": "only this"}]},
    {"conversations": [{"from": "human", "value": "q"}, {"from": "gpt", "value": "a"}]},
    {"text": "and a text", "conversations": None},
]
MESSAGE = pa.struct([("role", pa.string()), ("content", pa.string()), ("weight", pa.float64()), ("train", pa.bool_())])
TALK = pa.schema([("text", pa.string()), ("messages", pa.list_(MESSAGE)), ("system", pa.string()),
                  ("conversations", pa.list_(pa.struct([("from", pa.string()), ("value", pa.string())])))])
TOOLS = [
    {"messages": [
        {"role": "user", "content": "How warm is it?"},
        {"role": "assistant", "tool_calls": [{"type": "function", "function": {
            "name": "warmth", "arguments": {"place": "Kyōto", "days": [1, None, 3], "least": -0.5, "ratio": 0.25,
                                            "exact": 2.0, "far": 9007199254740993,
                                            "big": 18446744073709551615, "ok": True,
                                            "grid": [[1, 2], [], [3]], "small": 7, "none": []}}}]},
        {"role": "tool", "content": "21"},
        {"role": "assistant", "content": "21 degrees."}],
     "tools": [{"type": "function", "function": {"name": "warmth", "description": "of a place",
                                                 "parameters": {"type": "object", "required": ["place"]}}}]},
    {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}], "tools": []},
    {"messages": [{"role": "user", "content": "Hi"},
                  {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": {"ok": False}}},
                                                       {"function": {"name": "b", "arguments": {}}}]}]},
]
ARGUMENTS = pa.struct([
    ("place", pa.string()), ("days", pa.list_(pa.int32())), ("least", pa.float64()), ("ratio", pa.float32()),
    ("exact", pa.float64()), ("far", pa.int64()), ("big", pa.uint64()), ("ok", pa.bool_()),
    ("grid", pa.list_(pa.list_(pa.int64()))), ("small", pa.uint8()), ("none", pa.list_(pa.string()))])
FUNCTION = pa.struct([("name", pa.string()), ("arguments", ARGUMENTS)])
TOOL = pa.struct([("type", pa.string()), ("function", pa.struct([
    ("name", pa.string()), ("description", pa.string()),
    ("parameters", pa.struct([("type", pa.string()), ("required", pa.list_(pa.string()))]))]))])
CALLS = pa.schema([
    ("messages", pa.list_(pa.struct([
        ("role", pa.string()), ("content", pa.string()),
        ("tool_calls", pa.list_(pa.struct([("type", pa.string()), ("function", FUNCTION)])))]))),
    ("tools", pa.list_(TOOL))])


def without_nulls(value):
    if isinstance(value, dict):
        return {key: without_nulls(member) for key, member in value.items() if member is not None}
    return [without_nulls(element) for element in value] if isinstance(value, list) else value


def expect(name, rows):
    lines = [json.dumps(without_nulls(row), ensure_ascii=False) + "\n" for row in rows]
    (HERE / f"{name}.jsonl").write_text("".join(lines))


def write(name, table, **options):
    defaults = {"store_schema": False, "write_statistics": False, "use_dictionary": False, "compression": "none"}
    pq.write_table(table, HERE / f"{name}.parquet", **{**defaults, **options})


def write_texts():
    columns = pa.schema([("id", pa.int64()), ("text", pa.string()), ("more", pa.list_(pa.int32()))])
    table = pa.Table.from_pylist(TEXTS, schema=columns)
    encodings = {"plain": {}, "dictionary": {"use_dictionary": ["text"]},
                 "lengths": {"column_encoding": {"text": "DELTA_LENGTH_BYTE_ARRAY"}},
                 "prefixes": {"column_encoding": {"text": "DELTA_BYTE_ARRAY"}}}
    for encoding, codec, version in itertools.product(encodings, ["none", "snappy", "gzip", "zstd"], ["1.0", "2.0"]):
        write(f"texts-{encoding}-{codec}-v{version[0]}", table, compression=codec, data_page_version=version,
              **encodings[encoding])
    required = pa.schema([("id", pa.int64()), pa.field("text", pa.large_string(), nullable=False)])
    write("texts-required", table.select(["id", "text"]).cast(required))
    write("texts-binary", table.select(["text"]).cast(pa.schema([("text", pa.binary())])))
    write("texts-groups", table, row_group_size=5, data_page_size=1, write_batch_size=2)
    write("texts-fallback", table, use_dictionary=["text"], dictionary_pagesize_limit=40, write_batch_size=3)
    write("texts-checksums", table, write_page_checksum=True, compression="zstd")
    write("texts-statistics", table, write_statistics=True, write_page_index=True, compression="snappy")
    expect("texts", TEXTS)
    frame = pandas.DataFrame({"id": range(len(TEXTS)), "text": [row["text"] for row in TEXTS]})
    fastparquet.write(str(HERE / "texts-fastparquet.parquet"), frame, compression="SNAPPY", write_index=False)
    polars.from_pandas(frame).write_parquet(HERE / "texts-polars.parquet", row_group_size=7)
    duckdb.register("frame", frame)
    for version in "V1", "V2":
        duckdb.sql(f"COPY (SELECT * FROM frame) TO '{HERE}/texts-duckdb-{version.lower()}.parquet' "
                   f"(FORMAT parquet, PARQUET_VERSION {version}, COMPRESSION zstd)")


def write_rows():
    write("lines-zstd", pa.Table.from_pylist(LINES), compression="zstd")
    expect("lines", LINES)
    write("pairs-plain", pa.Table.from_pylist(PAIRS), compression="zstd")
    write("pairs-dictionary", pa.Table.from_pylist(PAIRS), use_dictionary=True, row_group_size=3)
    expect("pairs", PAIRS)
    table = pa.Table.from_pylist(TALKS, schema=TALK)
    for version in "1.0", "2.0":
        write(f"talks-plain-v{version[0]}", table, data_page_version=version)
        write(f"talks-dictionary-v{version[0]}", table, data_page_version=version, use_dictionary=True,
              compression="snappy", row_group_size=2)
    write("talks-pages", table, data_page_size=1, write_batch_size=1, data_page_version="1.0")
    write("talks-streams", table, use_byte_stream_split=["messages.list.element.weight"])
    polars.from_arrow(table).write_parquet(HERE / "talks-polars.parquet")
    duckdb.register("talks", table)
    duckdb.sql(f"COPY (SELECT * FROM talks) TO '{HERE}/talks-duckdb.parquet' (FORMAT parquet, COMPRESSION snappy)")
    expect("talks", TALKS)
    table = pa.Table.from_pylist(TOOLS, schema=CALLS)
    write("calls-plain", table, compression="zstd")
    write("calls-dictionary", table, use_dictionary=True, compression="zstd", data_page_version="2.0")
    path = "messages.list.element.tool_calls.list.element.function.arguments."
    write("calls-differences", table, compression="zstd",
          column_encoding={path + "far": "DELTA_BINARY_PACKED", path + "days.list.element": "DELTA_BINARY_PACKED"})
    expect("calls", TOOLS)
    numbers = pa.schema([("text", pa.string())])
    write("none-rows", pa.Table.from_pylist([], schema=numbers))
    pq.ParquetWriter(HERE / "none-groups.parquet", numbers, store_schema=False).close()
    expect("none", [])


def write_refused():
    text = pa.table({"text": ["abc", "def"]})
    write("refused-lz4", text, compression="lz4")
    write("refused-brotli", text, compression="brotli")
    write("refused-fields", pa.table({"id": [1], "body": ["abc"], "title": ["d"]}))
    write("refused-null", pa.table({"text": ["abc", None]}))
    write("refused-pair", pa.table({"prompt": ["abc"], "completion": pa.array([None], pa.string())}))
    write("refused-both", pa.table({"prompt": ["abc"], "completion": ["def"], "text": ["ghi"]}))
    write("refused-zero", pa.table({"text": ["abc", "d\0f"]}))
    write("refused-latin", pa.table({"text": pa.array([b"abc", b"caf\xe9"])}))
    write("refused-number", pa.table({"text": [1, 2]}))
    write("refused-fixed", pa.table({"text": pa.array([b"abc"], pa.binary(3))}))
    write("refused-twice", pa.table([pa.array(["a"]), pa.array(["b"])], names=["text", "text"]))
    for name, kind, value in ("decimal", pa.decimal128(5), 1), ("map", pa.map_(pa.string(), pa.string()), [("a", "b")]):
        message = pa.struct([("role", pa.string()), ("content", pa.string()), ("about", kind)])
        rows = [[{"role": "assistant", "content": "a", "about": value}]]
        write(f"refused-{name}", pa.table({"messages": pa.array(rows, pa.list_(message))}))


write_texts()
write_rows()
write_refused()
