"""Small pictures and videos, written without FFmpeg's programs."""

import io
import struct


def video(path, frames, claimed=None, size=32):
    """An AVI of JPEG pictures whose header claims `claimed` frames. Decoders look at the content, not at the name."""
    from PIL import Image

    def chunk(name, data):
        return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)

    def pile(name, *parts):
        return chunk(b"LIST", name + b"".join(parts))

    claimed = frames if claimed is None else claimed
    pictures = []
    for number in range(frames):
        out = io.BytesIO()
        Image.new("RGB", (size, size), (number * 9 % 255, 80, 40)).save(out, "JPEG")
        pictures.append(chunk(b"00dc", out.getvalue()))
    main = struct.pack("<14I", 40000, 0, 0, 0x10, claimed, 0, 1, 0, size, size, 0, 0, 0, 0)
    stream = b"vidsMJPG" + struct.pack("<10I4H", 0, 0, 0, 1, 25, 0, claimed, 0, 0xFFFFFFFF, 0, 0, 0, size, size)
    shape = struct.pack("<IiiHH4sIiiII", 40, size, size, 1, 24, b"MJPG", size * size * 3, 0, 0, 0, 0)
    body = pile(b"hdrl", chunk(b"avih", main), pile(b"strl", chunk(b"strh", stream), chunk(b"strf", shape)))
    index, offset = b"", 4
    for number in range(claimed):
        length = len(pictures[number]) - 8 if number < frames else 100
        index += b"00dc" + struct.pack("<III", 0x10, offset, length)
        offset += length + 8
    path.write_bytes(chunk(b"RIFF", b"AVI " + body + pile(b"movi", *pictures) + chunk(b"idx1", index)))


def frames(path, count, size=32):
    """A folder of PNG pictures."""
    from PIL import Image

    path.mkdir()
    for number in range(count):
        Image.new("RGB", (size, size), (number * 9 % 255, 80, 40)).save(path / f"{number:03}.png")
