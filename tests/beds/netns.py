"""Several hosts on one machine: each a network namespace with its own address, host name and hosts file.

    with Net(["a", "b"]) as net:
        net["a"].run(["ping", "-c1", "b"])
        net["b"].cut()                      # the cable is pulled: carrier is gone, nothing is answered
        net["b"].restore()

All interfaces live in namespaces of this bed: a switch (one bridge) and one namespace per host, so beds never meet each
other nor the machine's own network, every bed may use the same addresses, and tests run in parallel. The hosts share the
machine's process ids and file system (each has a folder of its own). Needs root.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
HOLDER = os.path.join(HERE, "holder.py")
CPU_ROOTS = ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup")
NETWORK = "10.77.0.0/24"
PREFIX = "lockstep-net-"  # folders and control groups: then the owner's process id


def missing():
    """Why network namespaces cannot be had here; empty when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "unshare", "nsenter", "mount"):
        if shutil.which(tool) is None:
            return f"network namespaces need the program '{tool}' (Debian: iproute2, util-linux)"
    probe = subprocess.run(["unshare", "--net", "--uts", "--mount", "true"], capture_output=True, text=True)
    return "" if probe.returncode == 0 else f"unshare: {probe.stderr.strip()}"


def live_processes(predicate):
    """Ids of all processes (no zombies) for which predicate(pid) is true; one that vanishes meanwhile is not."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] in "ZX":
                    continue
            if predicate(int(name)):
                found.append(int(name))
        except OSError:
            continue
    return found


def _sweep():
    """Removes folders and control groups of owners that were killed; their processes are gone by then."""
    for root, remove in ((tempfile.gettempdir(), shutil.rmtree), *((root, os.rmdir) for root in CPU_ROOTS)):
        with contextlib.suppress(OSError):
            for name in os.listdir(root):
                owner = name[len(PREFIX):].split("-")[0]
                if name.startswith(PREFIX) and owner.isdigit() and not os.path.exists(f"/proc/{owner}"):
                    with contextlib.suppress(OSError):
                        remove(os.path.join(root, name))


class _Namespace:
    """A network, host name and mount namespace, alive as long as its holder."""

    def __init__(self, hostname, hosts_file, resolv_file):
        self._holder = subprocess.Popen(
            ["unshare", "--net", "--uts", "--mount", sys.executable, HOLDER, hostname, hosts_file, resolv_file],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        if self._holder.stdout.readline() != b"ready\n":
            raise RuntimeError(f"host {hostname}: its namespaces could not be made")
        self.pid = self._holder.pid
        self.inode = os.stat(f"/proc/{self.pid}/ns/net").st_ino

    def command(self, argv):
        """argv as it must be started to run inside; the process id stays the one of argv itself."""
        return ["nsenter", "--net", "--uts", "--mount", "-t", str(self.pid), "--wd=.", "--", *argv]

    def ip(self, *lines):
        done = subprocess.run(self.command(["ip", "-batch", "-"]), input="\n".join(lines) + "\n",
                              capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"ip {lines}: {done.stderr.strip()}")

    def processes(self):
        """Ids of the processes inside, the holder excepted."""
        return live_processes(
            lambda pid: pid != self.pid and os.stat(f"/proc/{pid}/ns/net").st_ino == self.inode)

    def close(self):
        if self._holder.stdin.closed:
            return
        self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()


class Host:
    """One host of a Net. `folder` is its own folder and the default working directory of its commands."""

    def __init__(self, net, name, address, port):
        self.net = net
        self.name = name
        self.address = address
        self.address6 = f"fd77::{address.rsplit('.', 1)[1]}"
        self._port = port  # its end of the cable on the switch
        self.folder = os.path.join(net.folder, name)
        os.makedirs(self.folder)
        self._hosts_file = os.path.join(net.folder, f"{name}.hosts")
        self._cgroup = None
        self.write_hosts({})
        self._ns = _Namespace(name, self._hosts_file, net.resolv_file)

    # --- commands ---
    def popen(self, argv, **kwargs):
        """Starts argv on this host; the Popen's pid is argv's own process id."""
        kwargs.setdefault("cwd", self.folder)
        return subprocess.Popen(self._ns.command(argv), **kwargs)

    def run(self, argv, **kwargs):
        kwargs.setdefault("cwd", self.folder)
        kwargs.setdefault("capture_output", True)
        kwargs.setdefault("text", True)
        kwargs.setdefault("timeout", 60)
        return subprocess.run(self._ns.command(argv), **kwargs)

    def command(self, argv):
        return self._ns.command(argv)

    def processes(self):
        """Ids of all processes on this host, daemons and orphans included."""
        return self._ns.processes()

    # --- names ---
    def write_hosts(self, names):
        """Replaces the host's /etc/hosts by localhost and {name: address}, or pairs where a name has several."""
        pairs = names.items() if isinstance(names, dict) else names
        text = "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in pairs)
        with open(self._hosts_file, "w") as out:  # the same inode: it is bind-mounted
            out.write(text)

    def forget(self, *names):
        """This host no longer resolves `names`."""
        self.write_hosts({n: a for n, a in self.net.addresses().items() if n not in names})

    def learn_all(self):
        self.write_hosts(self.net.addresses())

    # --- faults of the network ---
    def cut(self):
        """Pulls the cable: no carrier, nothing gets in or out, nobody is told."""
        self.net.switch.ip(f"link set {self._port} down")

    def drop(self):
        """The network silently loses every packet of this host in both directions; the carrier stays."""
        self.net.switch.ip(f"link set {self._port} nomaster")

    def link_down(self):
        """This host's own interface is taken down: its kernel refuses to send, and hears nothing."""
        self._ns.ip("link set eth0 down")

    def route_deleted(self):
        """This host has no way to the others: its kernel refuses to send, but hears them."""
        self._ns.ip(f"route del {NETWORK} dev eth0")

    def output_dropped(self):
        """A firewall on this host drops what it sends; it hears the others."""
        self._firewall("output", "oifname")

    def input_dropped(self):
        """A firewall on this host drops what it gets; the others hear it."""
        self._firewall("input", "iifname")

    def _firewall(self, hook, interface):
        rules = (f"add table inet cut; add chain inet cut way {{ type filter hook {hook} priority 0; }}; "
                 f"add rule inet cut way {interface} eth0 drop")
        done = self.run(["nft", rules])
        if done.returncode != 0:
            raise RuntimeError(f"nft {rules}: {done.stderr.strip()}")

    def restore(self):
        """Ends every fault above."""
        self.net.switch.ip(f"link set {self._port} master br0", f"link set {self._port} up")
        self.run(["nft", "delete table inet cut"])  # there may be none
        self._ns.ip("link set eth0 up", f"route replace {NETWORK} dev eth0 scope link src {self.address}",
                    f"addr replace {self.address6}/64 dev eth0 nodad")

    # Every way to lose the network, by name: all of them must look the same from inside the job.
    CUTS = {"port of the switch down": cut, "frames dropped": drop, "own link down": link_down,
            "route deleted": route_deleted, "output dropped": output_dropped, "input dropped": input_dropped}

    # --- starving ---
    def starve(self, percent):
        """Leaves all current processes of this host, and their children, `percent` of one processor."""
        self._cgroup = _CpuGroup(f"{PREFIX}{os.getpid()}-{self._ns.inode}", percent)
        for pid in self.processes():
            self._cgroup.add(pid)

    def feed(self):
        """Ends starve()."""
        if self._cgroup is not None:
            self._cgroup.close()
            self._cgroup = None

    def close(self):
        self.feed()
        self._ns.close()


class _CpuGroup:
    """A control group with a bandwidth limit, of whichever version this machine has."""

    PERIOD_US = 100000

    def __init__(self, name, percent):
        quota = max(1000, int(self.PERIOD_US * percent / 100))
        for root in CPU_ROOTS:
            limit, text = "cpu.cfs_quota_us", str(quota)
            if root == "/sys/fs/cgroup":
                limit, text = "cpu.max", f"{quota} {self.PERIOD_US}"
            path = os.path.join(root, name)
            try:
                if limit == "cpu.max":
                    with contextlib.suppress(OSError):
                        with open(os.path.join(root, "cgroup.subtree_control"), "w") as control:
                            control.write("+cpu")
                os.mkdir(path)
                with open(os.path.join(path, limit), "w") as out:
                    out.write(text)
            except OSError:
                with contextlib.suppress(OSError):
                    os.rmdir(path)
                continue
            self._path, self._root = path, root
            return
        raise RuntimeError("no cpu control group can be made on this machine")

    def add(self, pid):
        with contextlib.suppress(OSError):  # it may have ended meanwhile
            with open(os.path.join(self._path, "cgroup.procs"), "w") as procs:
                procs.write(str(pid))

    def close(self):
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            with open(os.path.join(self._path, "cgroup.procs")) as procs:
                pids = procs.read().split()
            for pid in pids:
                with contextlib.suppress(OSError):
                    with open(os.path.join(self._root, "cgroup.procs"), "w") as out:
                        out.write(pid)
            with contextlib.suppress(OSError):
                os.rmdir(self._path)
                return


class Net:
    """Hosts named `names` on one switch, with addresses 10.77.0.1 and fd77::1, 10.77.0.2 and fd77::2, ... in that order."""

    def __init__(self, names, folder=None):
        self._own_folder = folder is None
        _sweep()
        self.folder = folder or tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-")
        self._names = list(names)
        self._hosts = {}
        self.resolv_file = os.path.join(self.folder, "resolv.conf")
        with open(self.resolv_file, "w") as out:  # nobody answers there, and at once: unknown names fail quickly
            out.write("nameserver 127.0.0.1\noptions timeout:1 attempts:1\n")
        empty = os.path.join(self.folder, "switch.hosts")
        with open(empty, "w") as out:
            out.write("127.0.0.1 localhost\n")
        self.switch = None
        try:
            self.switch = _Namespace("switch", empty, self.resolv_file)
            self.switch.ip("link set lo up", "link add br0 type bridge forward_delay 0 stp_state 0", "link set br0 up")
            for index, name in enumerate(self._names):
                self._add(name, index)
            for host in self._hosts.values():
                host.learn_all()
        except BaseException:
            self.close()
            raise

    def _add(self, name, index):
        address, port = f"10.77.0.{index + 1}", f"p{index}"
        host = Host(self, name, address, port)
        self._hosts[name] = host
        self.switch.ip(f"link add {port} type veth peer name eth0 netns {host._ns.pid}",
                       f"link set {port} master br0", f"link set {port} up")
        host._ns.ip("link set lo up", f"addr add {address}/24 dev eth0", f"addr add {host.address6}/64 dev eth0 nodad",
                    "link set eth0 up")

    def addresses(self):
        return {name: f"10.77.0.{index + 1}" for index, name in enumerate(self._names)}

    def __getitem__(self, name):
        return self._hosts[name]

    def __iter__(self):
        return iter(self._hosts.values())

    def processes(self):
        return [pid for host in self for pid in host.processes()]

    def close(self):
        """Kills every process of every host and takes the network away."""
        for host in self._hosts.values():
            host.close()
        if self.switch is not None:
            self.switch.close()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
