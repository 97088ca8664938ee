#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""plant_outliers.py FOLDER EXPONENT CHANNELS: makes the hidden activations of a Llama's gated MLPs have outliers.

FOLDER is a Hugging Face folder as `trainer export` writes it, changed in place.  In every layer CHANNELS rows of up_proj
are multiplied by 2^EXPONENT and the same columns of down_proj divided by it: the function stays what it was, bit for bit
(but for what leaves the format's range), and what down_proj reads is 2^EXPONENT larger in these channels.
"""
import json
import math
import os
import struct
import sys

SIZES = {"F32": 4, "F16": 2, "BF16": 2}


def scaled(raw, dtype, factor):
    """The number's bytes times a power of two."""
    if dtype == "BF16":
        (value,) = struct.unpack("<f", b"\0\0" + raw)
        return struct.pack("<f", value * factor)[2:]
    code = {"F32": "<f", "F16": "<e"}[dtype]
    (value,) = struct.unpack(code, raw)
    return struct.pack(code, value * factor)


def scale_elements(data, entry, places, factor):
    size, start = SIZES[entry["dtype"]], entry["data_offsets"][0]
    for place in places:
        at = start + place * size
        data[at : at + size] = scaled(bytes(data[at : at + size]), entry["dtype"], factor)


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    path, exponent, channels = os.path.join(sys.argv[1], "model.safetensors"), int(sys.argv[2]), int(sys.argv[3])
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = bytearray(file.read())
    planted = 0
    for name, up in header.items():
        if not name.endswith("mlp.up_proj.weight"):
            continue
        down = header[name.replace("up_proj", "down_proj")]
        width, inner = up["shape"][1], up["shape"][0]
        for channel in (math.floor(inner * (i + 0.5) / channels) for i in range(channels)):
            scale_elements(data, up, range(channel * width, (channel + 1) * width), 2.0**exponent)
            scale_elements(data, down, range(channel, width * inner, inner), 2.0**-exponent)
            planted += 1
    if planted == 0:
        sys.exit(f"{path}: no mlp.up_proj.weight: this is no Llama")
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".new", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)
    os.replace(path + ".new", path)
    print(f"{planted} channels of {path} times 2^{exponent}")


main()
