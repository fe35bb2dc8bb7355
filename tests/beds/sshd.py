"""Real sshd on hosts of netns.py, with keys of the bed: a user on the first host reaches all of them by `ssh NAME`.

    with netns.Net(["a", "b"]) as net, Sshd(net) as ssh:
        net["a"].run(["ssh", "b", "hostname"], env=ssh.env())
"""

import os
import shutil
import subprocess
import time

from . import netns


def missing():
    """Why no sshd can be started here; empty when it can."""
    reason = netns.missing()
    if reason:
        return reason
    for tool in ("sshd", "ssh", "ssh-keygen"):
        if shutil.which(tool, path=os.environ.get("PATH", "") + ":/usr/sbin") is None:
            return f"ssh needs the program '{tool}' (Debian: openssh-server, openssh-client)"
    return ""


class Sshd:
    def __init__(self, net):
        self.net = net
        self.folder = os.path.join(net.folder, "ssh")
        self._daemons = []
        os.makedirs(self.folder, mode=0o700)
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)  # where sshd confines itself
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(self.folder, name)], check=True)
        shutil.copy(os.path.join(self.folder, "user.pub"), os.path.join(self.folder, "authorized"))
        sshd = shutil.which("sshd", path="/usr/sbin:" + os.environ.get("PATH", ""))
        for name in net.addresses():
            with open(os.path.join(self.folder, f"{name}.log"), "wb") as log:
                self._daemons.append(net[name].popen(
                    [sshd, "-D", "-e", "-f", "/dev/null", "-h", os.path.join(self.folder, "host"), "-o", "Port=22", "-o", "StrictModes=no",
                     "-o", f"AuthorizedKeysFile={self.folder}/authorized", "-o", "UsePAM=no", "-o", "PidFile=none",
                     "-o", "PermitRootLogin=prohibit-password"], stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        # `ssh` as the user would call it: the bed's key, hosts that nobody has met before.
        self.bin = os.path.join(self.folder, "bin")
        os.makedirs(self.bin)
        path = os.path.join(self.bin, "ssh")
        with open(path, "w") as out:
            out.write(f'#!/bin/sh\nexec {shutil.which("ssh")} -F /dev/null -i {self.folder}/user -o StrictHostKeyChecking=no '
                      '-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$@"\n')
        os.chmod(path, 0o755)
        first = next(iter(net.addresses()))
        deadline = time.monotonic() + 60
        for name in net.addresses():
            while net[first].run([path, "-o", "ConnectTimeout=2", name, "true"]).returncode != 0:
                if time.monotonic() > deadline:
                    with open(os.path.join(self.folder, f"{name}.log"), errors="replace") as log:
                        raise RuntimeError(f"sshd on {name} does not answer\n{log.read()}")
                time.sleep(0.05)

    def env(self, base):
        return {**base, "PATH": f"{self.bin}:{os.environ['PATH']}"}

    def close(self):
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
