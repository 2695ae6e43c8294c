"""Reads checkpoints by docs/checkpoints.md alone: the standard library, numpy, and no line of trainlet.

It stands for a reader in another language. BLAKE3 is written from its specification, for the hash that a reader needs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

MASK = 0xFFFFFFFF
START = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
ORDER = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
LANES = (*COLUMNS, (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))
CHUNK_START, CHUNK_END, PARENT, ROOT = 1, 2, 4, 8
KINDS = {
    "bool": "?", "uint8": "u1", "int8": "i1", "uint16": "<u2", "int16": "<i2", "float16": "<f2", "bfloat16": "<u2",
    "uint32": "<u4", "int32": "<i4", "float32": "<f4", "uint64": "<u8", "int64": "<i8", "float64": "<f8", "complex64": "<c8",
}  # fmt: skip


class Damaged(Exception):
    """Raised when bytes are not what was written."""


def compress(chain: tuple[int, ...], block: bytes, counter: int, flags: int) -> tuple[int, ...]:
    """Mix one block of at most 64 bytes into a chaining value."""
    padded = block.ljust(64, b"\0")
    words = [int.from_bytes(padded[at : at + 4], "little") for at in range(0, 64, 4)]
    state = [*chain, *START[:4], counter & MASK, counter >> 32, len(block), flags]
    for _ in range(7):
        for index, (a, b, c, d) in enumerate(LANES):
            for word, (left, right) in zip(words[2 * index : 2 * index + 2], ((16, 12), (8, 7)), strict=True):
                state[a] = (state[a] + state[b] + word) & MASK
                state[d] = turned(state[d] ^ state[a], left)
                state[c] = (state[c] + state[d]) & MASK
                state[b] = turned(state[b] ^ state[c], right)
        words = [words[index] for index in ORDER]
    return tuple(one ^ other for one, other in zip(state[:8], state[8:], strict=True))


def turned(word: int, by: int) -> int:
    """Rotate to the right."""
    return (word >> by | word << 32 - by) & MASK


def tree_hash(data: bytes, first: int, top: int) -> tuple[int, ...]:
    """Return the chaining value of a subtree that begins with this chunk."""
    if len(data) <= 1024:
        chain = START
        blocks = [data[at : at + 64] for at in range(0, len(data), 64)] or [b""]
        for index, block in enumerate(blocks):
            flags = (CHUNK_START if index == 0 else 0) | (CHUNK_END | top if index == len(blocks) - 1 else 0)
            chain = compress(chain, block, first, flags)
        return chain
    chunks = 1 << ((len(data) - 1) // 1024).bit_length() - 1  # the largest power of two that leaves something
    halves = (tree_hash(data[: chunks * 1024], first, 0), tree_hash(data[chunks * 1024 :], first + chunks, 0))
    return compress(START, b"".join(word.to_bytes(4, "little") for half in halves for word in half), 0, PARENT | top)


def blake3(data: bytes) -> str:
    """Return the blake3 of some bytes in hexadecimal."""
    return b"".join(word.to_bytes(4, "little") for word in tree_hash(data, 0, ROOT)).hex()


def sealed(raw: bytes) -> dict[str, Any]:
    """Return a record of the log or a receipt, whose first member is the hash of all that is left without it."""
    if not raw.startswith(b'{"b3":"') or raw[71:73] != b'",' or blake3(b"{" + raw[73:]) != raw[7:71].decode():
        raise Damaged("its b3 is not that of its bytes")
    fields: dict[str, Any] = json.loads(raw)
    return fields


def newest_record(run: Path) -> dict[str, Any]:
    """Return the newest whole record of a run."""
    for path in sorted((run / "log").iterdir()):
        if path.suffix == ".json" and len(path.stem) == 10 and path.stem.isdecimal():
            try:
                record = sealed(path.read_bytes())
            except (Damaged, ValueError):
                continue
            assert record["seq"] == 9_999_999_999 - int(path.stem) and record["state"]["format"] == 1
            return record
    raise FileNotFoundError("no record")


def tensor(store: Path, entry: dict[str, Any]) -> Any:
    """Return an array whose slices are read from their packs and checked."""
    whole = np.empty(entry["shape"], KINDS[entry["dtype"]])
    for part in entry["slices"]:
        begin, end = part["range"]
        with (store / part["pack"]).open("rb") as file:
            file.seek(begin)
            data = file.read(end - begin)
        if blake3(data) != part["b3"]:
            raise Damaged(f"{part['pack']} is damaged")
        offset = part["offset"] or [0] * len(part["shape"])
        place = tuple(slice(first, first + size) for first, size in zip(offset, part["shape"], strict=True))
        whole[place] = np.frombuffer(data, KINDS[entry["dtype"]]).reshape(part["shape"])
    return whole


def value(tree: Any, tensors: dict[str, Any]) -> Any:
    """Return what a tree stands for."""
    if isinstance(tree, list):
        return [value(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    match tree.get("$ck"):
        case None:
            return {key: value(item, tensors) for key, item in tree.items()}
        case "tensor":
            return tensors[tree["name"]]
        case "float":
            return float(tree["value"])
        case "tuple":
            return tuple(value(item, tensors) for item in tree["items"])
        case "dict":
            return {value(key, tensors): value(item, tensors) for key, item in tree["pairs"]}
    raise Damaged(f"what is {tree['$ck']}?")


def read(store: Path, prefix: str, rank: int = 0) -> tuple[int, dict[str, Any]]:
    """Return (step, registered objects of a rank) of the newest checkpoint."""
    commit = newest_record(store / prefix)["state"]["commits"][-1]
    raw = (store / commit["manifest"]).read_bytes()
    if blake3(raw) != commit["digest"]:
        raise Damaged(f"{commit['manifest']} is damaged")
    manifest = json.loads(raw)
    assert manifest["format"] == 1 and manifest["step"] == commit["step"]
    tensors = {name: tensor(store, entry) for name, entry in manifest["tensors"].items()}
    trees = {**manifest["trees"], **manifest["ranks"].get(str(rank), {})}
    return commit["step"], {name: value(tree, tensors) for name, tree in trees.items()}


def pack_header(path: Path) -> dict[str, Any]:
    """Return the header of a pack: where each block of a tensor lies in what follows it."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header: dict[str, Any] = json.loads(raw[8 : 8 + size])
    assert max(one["data_offsets"][1] for one in header.values()) == len(raw) - 8 - size
    return header
