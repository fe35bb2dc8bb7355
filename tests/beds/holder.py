"""The first process of a bed's host: keeps the namespaces alive and empties them when its owner goes away.

Started as `unshare --net --uts --mount python3 holder.py <hostname> <hosts-file> <resolv-file>` with a pipe as stdin.
The owner closing that pipe, by `close()` or by dying in any way, is the order to kill every process that lives in this
network namespace. So a crashed or killed test leaves nothing behind.
"""

import os
import signal
import socket
import subprocess
import sys
import time


def processes_here():
    """Ids of the other processes in this network namespace, however they were forked."""
    here = os.stat("/proc/self/ns/net").st_ino
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/stat") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                    continue
            if os.stat(f"/proc/{name}/ns/net").st_ino == here:
                found.append(int(name))
        except OSError:
            pass  # it ended while we looked
    return found


def main():
    hostname, hosts_file, resolv_file = sys.argv[1:4]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    socket.sethostname(hostname)
    subprocess.run(["mount", "--bind", hosts_file, "/etc/hosts"], check=True)
    if os.path.exists("/etc/resolv.conf"):
        subprocess.run(["mount", "--bind", resolv_file, "/etc/resolv.conf"], check=True)
    os.write(1, b"ready\n")
    while os.read(0, 4096):
        pass
    # A process may fork and end between two looks: only several empty looks in a row mean that nobody is left.
    empty = 0
    while empty < 3:
        left = processes_here()
        empty = 0 if left else empty + 1
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


main()
