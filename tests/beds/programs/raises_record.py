"""raises_record.py FOLDER RANK: rank RANK raises under torch's @record, which writes TORCHELASTIC_ERROR_FILE."""

import sys
import time

from torch.distributed.elastic.multiprocessing.errors import record

import ready


@record
def main():
    ready.mark(sys.argv[1])
    ready.wait_for_all(sys.argv[1])
    if ready.RANK == int(sys.argv[2]):
        raise RuntimeError("the dataset has no samples left for rank %d" % ready.RANK)
    time.sleep(600)


main()
