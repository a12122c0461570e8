"""Reads Arrow IPC streams into NumPy arrays, without pyarrow, which Debian does not have.

Source: Arrow Columnar Format 1.5, "Serialization and Interprocess Communication"; messages are flatbuffers.
"""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO

import numpy as np

Array = np.ndarray[Any, Any]
SCHEMA, BATCH = 1, 3  # MessageHeader
# By Type and width: Int of 32 and 64 bits, FloatingPoint of precision DOUBLE.
TYPES: dict[tuple[int, int], np.dtype[Any]] = {
    (2, 32): np.dtype("<i4"), (2, 64): np.dtype("<i8"), (3, 2): np.dtype("<f8")}


class _Flat:
    """A table of a flatbuffer. Absent fields are 0."""

    def __init__(self, data: memoryview, at: int):
        self.data, self.at = data, at

    def _get(self, form: str, at: int) -> int:
        return int(struct.unpack_from("<" + form, self.data, at)[0])

    def place(self, slot: int) -> int:
        """Where a field begins; 0 for absent."""
        vtable = self.at - self._get("i", self.at)
        entry = 4 + 2 * slot
        offset = self._get("H", vtable + entry) if entry < self._get("H", vtable) else 0
        return offset and self.at + offset

    def number(self, slot: int, form: str) -> int:
        at = self.place(slot)
        return self._get(form, at) if at else 0

    def _target(self, at: int) -> int:
        return at + self._get("I", at)

    def pair(self, at: int, i: int) -> tuple[int, int]:
        """Element i of a vector of pairs of 64-bit numbers that begins at a place."""
        return self._get("q", at + 16 * i), self._get("q", at + 16 * i + 8)

    def table(self, slot: int) -> _Flat:
        return _Flat(self.data, self._target(self.place(slot)))

    def vector(self, slot: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many there are."""
        at = self.place(slot)
        at = at and self._target(at)
        return (at + 4, self._get("I", at)) if at else (0, 0)

    def tables(self, slot: int) -> list[_Flat]:
        at, n = self.vector(slot)
        return [_Flat(self.data, self._target(at + 4 * i)) for i in range(n)]

    def text(self, slot: int) -> str:
        at, n = self.vector(slot)
        return bytes(self.data[at:at + n]).decode()

    def pairs(self, slot: int) -> dict[str, str]:
        return {p.text(0): p.text(1) for p in self.tables(slot)}


def _fill(stream: BinaryIO, into: Array) -> None:
    view, at = memoryview(into.data).cast("B"), 0
    while at < len(view):
        got = stream.readinto(view[at:])  # type: ignore[attr-defined]
        if not got:
            raise EOFError("the Arrow stream ends within a message")
        at += got


def _exactly(stream: BinaryIO, n: int) -> memoryview:
    out = np.empty(n, np.uint8)
    if n > 0:
        _fill(stream, out)
    return out.data


def read_arrow(stream: BinaryIO, rows: int = 0) -> tuple[dict[str, Array], dict[str, str], dict[str, Any]]:
    """Columns, their units and the metadata of a stream of integers and doubles without missing values.

    Values go from the stream into the columns, which have room for so many rows at first: fresh memory is what costs.
    Raises ValueError for other types, missing values and compressed buffers, EOFError for a stream without its end.
    """
    units: dict[str, str] = {}
    meta: dict[str, Any] = {}
    columns: dict[str, Array] = {}
    have = 0
    while True:
        mark, size = struct.unpack("<II", _exactly(stream, 8))
        if mark != 0xFFFFFFFF:
            raise ValueError("not an Arrow IPC stream")
        if size == 0:
            return {name: c[:have] for name, c in columns.items()}, units, meta
        data = _exactly(stream, size)
        message = _Flat(data, struct.unpack_from("<I", data)[0])
        header, head, body = message.number(1, "B"), message.table(2), message.number(3, "q")
        if header == SCHEMA:
            meta = json.loads(head.pairs(2).get("wattmark", "{}"))
            for field in head.tables(1):
                name, of = field.text(0), field.number(2, "B")
                kind = (of, field.table(3).number(0, "i" if of == 2 else "h"))
                if kind not in TYPES:
                    raise ValueError("column %s: Arrow type %d of width %d is not read" % (name, *kind))
                columns[name] = np.empty(rows, TYPES[kind])
                units[name] = field.pairs(6).get("unit", "")
        elif header == BATCH:
            n = head.number(0, "q")
            if have + n > rows:
                rows = max(2 * rows, have + n)
                for name, c in columns.items():
                    columns[name] = np.concatenate((c[:have], np.empty(rows - have, c.dtype)))
            body -= _batch(stream, head, [c[have:have + n] for c in columns.values()])
            have += n
        _exactly(stream, body)


def _batch(stream: BinaryIO, head: _Flat, into: list[Array]) -> int:
    """Read a record batch's values; returns how many bytes of its body that took."""
    (nodes, _), (buffers, _) = head.vector(1), head.vector(2)
    if head.place(3) or any(head.pair(nodes, i)[1] for i in range(len(into))):
        raise ValueError("compressed Arrow buffers and missing values are not read")
    at = 0
    for i, column in enumerate(into):  # each has two buffers: a bitmap of missing values, and the values
        begin, size = head.pair(buffers, 2 * i + 1)
        if begin < at or size < column.nbytes:
            raise ValueError("Arrow buffers out of order")
        _exactly(stream, begin - at)
        if len(column):
            _fill(stream, column)
        at = begin + column.nbytes
    return at
