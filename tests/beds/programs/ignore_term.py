"""ignore_term.py FOLDER: deaf to every polite signal; only SIGKILL ends it."""

import signal
import sys
import time

import ready

for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_IGN)
ready.mark(sys.argv[1])
time.sleep(600)
