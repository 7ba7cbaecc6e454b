"""Event files at the level of bytes: TFRecord frames, and the protocol buffers in them.

Written here because the base install, which imports results, has neither TensorBoard nor protobuf. TensorBoard's own
reader also reads damaged files as if they ended early, and has no limits.

Sources: https://www.tensorflow.org/tutorials/load_data/tfrecord (frames, masked CRC-32C) and
https://protobuf.dev/programming-guides/encoding/ (varints, wire types).
"""

import struct
from collections.abc import Iterator
from pathlib import Path

from db.importers.fields import ImportFormatError

MAX_RECORD_BYTES = 2**26
MAX_CHECKED_BYTES = 2**20
"""Larger records are images or graphs, which are not used; only their length is checked."""
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_POLYNOMIAL = 0x82F63B78


def _crc_table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = (crc >> 1) ^ (_POLYNOMIAL if crc & 1 else 0)
        table.append(crc)
    return tuple(table)


_TABLE = _crc_table()


def masked_crc32c(data: bytes) -> int:
    """Return the checksum of a TFRecord frame.

    >>> hex(masked_crc32c(b"123456789"))
    '0xc78ab0e5'
    """
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def records(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield (byte position, content) of each record of up to 1 MiB; larger records are skipped.

    Raises:
        ImportFormatError: the file is cut off, or a checksum is wrong.
    """
    with path.open("rb") as stream:
        position = 0
        while header := stream.read(_HEADER.size):
            place = f"byte {position:,}"
            if len(header) < _HEADER.size:
                raise ImportFormatError(path, place, "the file is cut off within a record")
            length, crc = _HEADER.unpack(header)
            if masked_crc32c(header[:8]) != crc:
                raise ImportFormatError(
                    path, place, "the checksum of a record's length is wrong: not an event file, or damaged"
                )
            if length > MAX_RECORD_BYTES:
                raise ImportFormatError(path, place, f"a record of {length:,} bytes, at most 64 MiB is read")
            data = stream.read(length)
            tail = stream.read(_CRC.size)
            if len(data) < length or len(tail) < _CRC.size:
                raise ImportFormatError(path, place, "the file is cut off within a record")
            if length <= MAX_CHECKED_BYTES:
                if masked_crc32c(data) != _CRC.unpack(tail)[0]:
                    raise ImportFormatError(path, place, "the checksum of a record is wrong: the file is damaged")
                yield position, data
            position += _HEADER.size + length + _CRC.size


Value = int | bytes


def fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Yield (field number, value) of a message; values are bytes, except varints.

    Raises:
        ValueError: the bytes are not a message.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire_type == 2:
            length, at = _varint(message, at)
        elif wire_type in (1, 5):
            length = 8 if wire_type == 1 else 4
        else:
            raise ValueError(f"wire type {wire_type} does not occur in events")
        if at + length > len(message):
            raise ValueError("a field is longer than its message")
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("a number is cut off")
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise ValueError("a number is longer than 64 bits")
