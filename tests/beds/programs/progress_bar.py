"""progress_bar.py: a bar redrawn with carriage returns, an unfinished last line, and bytes that are no UTF-8."""

import sys

for i in range(11):
    sys.stdout.write(f"\rstep {i}/10")
sys.stdout.write("\n")
sys.stdout.flush()
sys.stdout.buffer.write(b"broken \xff\xfe text\n")
sys.stdout.buffer.write(b"no newline at the end")
sys.stdout.flush()
