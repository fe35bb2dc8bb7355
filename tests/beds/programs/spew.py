"""spew.py FOLDER BYTES: writes BYTES of numbered 100-byte lines to stdout as fast as it can, then marks FOLDER/done.<rank>."""

import os
import sys

import ready

lines = int(sys.argv[2]) // 100
ready.mark(sys.argv[1])
for start in range(0, lines, 1000):
    block = b"".join(b"rank %04d line %010d %s\n" % (ready.RANK, i, b"." * 73) for i in range(start, min(start + 1000, lines)))
    while block:
        block = block[os.write(1, block):]
ready.mark(sys.argv[1], "done")
