# SPDX-License-Identifier: MIT
"""Machine code of the twins: compare.py CUBIN...

Of each own_NAME and vendor_NAME in the object files the bytes of section .text are compared: every instruction with its
registers and its control bits.  NAMES below may differ, for the reason there, and it is an error if they do not.
Exit status 1: something is not as it should be.
"""
import struct
import sys

DIFFERENT = {
    "copy_async_16": "CuTe asks L2 for 128 bytes (.L2::128B), which is a hint",
    "copy_async_4": "CuTe asks L2 for 128 bytes (.L2::128B), which is a hint",
    "load_acquire": "libcu++ has generic addresses (LD), the wrapper those of device memory (LDG)",
    "store_release": "libcu++ has generic addresses (ST), the wrapper those of device memory (STG)",
}


def texts(path):
    """Sections .text.NAME of a 64-bit ELF file."""
    with open(path, "rb") as file:
        data = file.read()
    table, size, count, names = (struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HHH", data, 58))
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    strings = headers[names][4]
    found = {}
    for name, _, _, _, offset, length in headers:
        start = strings + name
        text = data[start : data.index(b"\0", start)].decode()
        if text.startswith(".text."):
            found[text[len(".text.") :]] = data[offset : offset + length]
    return found


def main():
    kernels = {}
    for path in sys.argv[1:]:
        kernels.update(texts(path))
    names = sorted(name[len("own_") :] for name in kernels if name.startswith("own_"))
    wrong = equal = 0
    for name in names:
        same = kernels["own_" + name] == kernels["vendor_" + name]
        equal += same
        if same == (name in DIFFERENT):
            wrong += 1
            print(f"FAIL  {name}: " + ("the same, and expected to differ" if same else "not the same machine code"))
        elif not same:
            print(f"      {name} differs: {DIFFERENT[name]}")
    print(f"{len(names)} wrappers: {equal} with the same machine code, {len(names) - equal} without, {wrong} wrong")
    sys.exit(wrong > 0 or not names)


if __name__ == "__main__":
    main()
