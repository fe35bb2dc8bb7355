#!/usr/bin/env python3
"""Writes the machines of this folder as the kernel shows them: sysfs and procfs files in the forms of Linux 5.10 to
6.8, mlx5 and Intel cards. Run it after a change here; the .tree files are what the tests read (see ../tree.h).

    python3 tests/hardware/trees/make_trees.py
"""

import ipaddress
import pathlib

HERE = pathlib.Path(__file__).parent


class Machine:
    def __init__(self, title):
        self.lines = ["# " + title]
        self.addresses = []  # interface, "10.0.0.5/24"
        self.routes = []  # interface, destination, gateway, metric
        self.index = 1
        self.verbs = 0
        self.mounts = ["22 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw,errors=remount-ro"]
        self.rooms = {"/": (1863000000000, 1200000000000, 116000000, 115000000)}
        self.interface("lo", type=772, flags=0x9, state="unknown", mtu=65536, device=None)
        self.addresses.append(("lo", "127.0.0.1/8"))

    def put(self, path, content):
        text = str(content)
        text = text if text.endswith("\n") else text + "\n"
        self.lines.append(path + "\t" + text.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t"))

    def link(self, path, target):
        self.lines.append(f"{path} -> {target}")

    def folder(self, path):
        self.lines.append(path + "/")

    def pci(self, path, numa, driver):
        """path: "pci0000:15/0000:15:01.0/0000:19:00.0" """
        address = path.rsplit("/", 1)[1]
        at = "/sys/devices/" + path
        self.put(at + "/numa_node", numa)
        self.put(at + "/uevent", f"DRIVER={driver}\nPCI_CLASS=20000\nPCI_SLOT_NAME={address}")
        self.link(at + "/driver", "/".join([".."] * (path.count("/") + 2)) + "/bus/pci/drivers/" + driver)
        self.link("/sys/bus/pci/devices/" + address, "../../../devices/" + path)
        return at

    def hca(self, name, path, numa, ports, model="MT4129", fw="28.39.1002", netdevs=(), verbs=True, driver="mlx5_core"):
        """ports: list of dict(state, phys, rate, layer, lid, sm_lid, gids=[(index, gid, type, ndev)])"""
        at = self.pci(path, numa, driver) + "/infiniband/" + name
        self.link("/sys/class/infiniband/" + name, "../.." + at[4:])
        self.link(at + "/device", "../..")
        self.put(at + "/hca_type", model)
        self.put(at + "/fw_ver", fw)
        self.put(at + "/node_guid", "a088:c203:0012:%04x" % (self.verbs + 1))
        node = f"uverbs{self.verbs}"
        self.verbs += 1
        self.put(at.rsplit("/", 2)[0] + f"/infiniband_verbs/{node}/ibdev", name)
        self.link("/sys/class/infiniband_verbs/" + node, "../.." + at.rsplit("/", 2)[0][4:] + "/infiniband_verbs/" + node)
        if verbs:
            self.put("/dev/infiniband/" + node, "")
        for number, port in enumerate(ports, 1):
            p = f"{at}/ports/{number}"
            self.put(p + "/state", port["state"])
            self.put(p + "/phys_state", port["phys"])
            self.put(p + "/rate", port["rate"])
            self.put(p + "/link_layer", port["layer"])
            self.put(p + "/lid", port.get("lid", "0x0"))
            self.put(p + "/sm_lid", port.get("sm_lid", "0x0"))
            self.put(p + "/cap_mask", "0xa651e848")
            known = {g[0] for g in port["gids"]}
            for index, gid, kind, ndev in port["gids"]:
                full = ipaddress.IPv6Address(gid).exploded
                self.put(f"{p}/gids/{index}", full)
                self.put(f"{p}/gid_attrs/types/{index}", kind)
                if ndev:
                    self.put(f"{p}/gid_attrs/ndevs/{index}", ndev)
            for index in range(max(known, default=-1) + 4):
                if index not in known:
                    self.put(f"{p}/gids/{index}", "0000:0000:0000:0000:0000:0000:0000:0000")
        for netdev in netdevs:
            self.folder(at.rsplit("/", 2)[0] + "/net/" + netdev)

    def interface(self, name, *, type=1, flags=0x1003, state="up", mtu=1500, speed=None, device=None, master=None,
                  lower=(), devtype=None, extra=(), numa=0, driver="ice", iflink=None, carrier=1):
        index = self.index
        self.index += 1
        if device:
            real = "/sys/devices/" + device + "/net/" + name
        else:
            real = "/sys/devices/virtual/net/" + name
        self.link("/sys/class/net/" + name, "../.." + real[4:])
        if device:
            self.link(real + "/device", "../..")
            if not any(line.startswith("/sys/devices/" + device + "/numa_node") for line in self.lines):
                self.pci(device, numa, driver)
        self.put(real + "/type", type)
        self.put(real + "/flags", hex(flags))
        self.put(real + "/operstate", state)
        self.put(real + "/ifindex", index)
        self.put(real + "/iflink", index if iflink is None else iflink)
        self.put(real + "/mtu", mtu)
        if flags & 1:
            self.put(real + "/carrier", carrier)
        if speed is not None:
            self.put(real + "/speed", speed)
        self.put(real + "/uevent", (f"DEVTYPE={devtype}\n" if devtype else "") + f"INTERFACE={name}\nIFINDEX={index}")
        if master:
            self.link(real + "/master", "../" * real.count("/") + "sys/devices/virtual/net/" + master)
        for one in lower:
            self.folder(real + "/lower_" + one)
        for path, content in extra:
            self.put(real + "/" + path, content)

    def address(self, interface, text):
        self.addresses.append((interface, text))
        net = ipaddress.ip_interface(text).network
        self.routes.append((interface, str(net), None, 256 if net.version == 6 else 0))

    def route(self, interface, destination, gateway, metric=0):
        self.routes.append((interface, destination, gateway, metric))

    def network(self):
        def little(address):
            return "%08X" % int.from_bytes(ipaddress.IPv4Address(address).packed, "little")

        v4 = ["Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT"]
        v6 = []
        for interface, destination, gateway, metric in self.routes:
            net = ipaddress.ip_network(destination)
            if net.version == 4:
                flags = 1 | (2 if gateway else 0)
                v4.append("\t".join([interface, little(net.network_address), little(gateway or "0.0.0.0"),
                                     "%04X" % flags, "0", "0", str(metric), little(net.netmask), "0", "0", "0"]))
            else:
                v6.append(f"{net.network_address.packed.hex()} {net.prefixlen:02x} {'0' * 32} 00 "
                          f"{ipaddress.IPv6Address(gateway or '::').packed.hex()} {metric:08x} 00000001 00000000 "
                          f"{3 if gateway else 1:08x} {interface:>8}")
        trie = ["Main:", "  +-- 0.0.0.0/0 3 0 5"]
        for interface, text in self.addresses:
            one = ipaddress.ip_interface(text)
            if one.version == 4:
                trie += [f"     |-- {one.network.network_address}",
                         f"        /{one.network.prefixlen} link UNICAST" if interface != "lo" else "        /8 host LOCAL",
                         f"     |-- {one.ip}", "        /32 host LOCAL"]
        inet6 = [f"{ipaddress.ip_interface(t).ip.packed.hex()} {2:02x} {ipaddress.ip_interface(t).network.prefixlen:02x} "
                 f"{0x20 if t.startswith('fe80') else 0:02x} 80 {i:>8}"
                 for i, t in self.addresses if ":" in t]
        self.put("/proc/net/route", "\n".join(v4))
        self.put("/proc/net/ipv6_route", "\n".join(v6))
        self.put("/proc/net/fib_trie", "\n".join(trie))
        self.put("/proc/net/if_inet6", "\n".join(inet6))

    def base(self, host, *, kernel="5.15.0-105-generic", os="Ubuntu 22.04.4 LTS", model="Intel(R) Xeon(R) Platinum 8468",
             nodes=2, cores=96, threads=2, memory=2113000000, shm=1082000000000, memlock="unlimited", nofile=1048576,
             cgroup="0::/user.slice/user-1000.slice/session-3.scope", topology=False):
        self.put("/proc/sys/kernel/hostname", host)
        self.put("/proc/sys/kernel/osrelease", kernel)
        self.put("/etc/os-release", f'NAME="{os.split()[0]}"\nPRETTY_NAME="{os}"\nID={os.split()[0].lower()}')
        self.put("/proc/cpuinfo", f"processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: {model}\nflags\t\t: fpu vme")
        self.put("/proc/meminfo", f"MemTotal:       {memory} kB\nMemFree:        {memory // 2} kB\n"
                                  f"MemAvailable:   {memory * 9 // 10} kB\nBuffers:          120000 kB")
        per = cores // nodes
        for node in range(nodes):
            first, second = node * per, cores + node * per
            cpus = f"{first}-{first + per - 1}" + (f",{second}-{second + per - 1}" if threads == 2 else "")
            self.put(f"/sys/devices/system/node/node{node}/cpulist", cpus)
            self.put(f"/sys/devices/system/node/node{node}/meminfo",
                     f"Node {node} MemTotal:       {memory // nodes} kB\nNode {node} MemFree:        {memory // 4} kB")
        self.put("/sys/devices/system/cpu/present", f"0-{cores * threads - 1}")
        for cpu in range(cores if topology else 0):  # many files: not for every machine
            siblings = f"{cpu},{cpu + cores}" if threads == 2 else str(cpu)
            for one in ([cpu, cpu + cores] if threads == 2 else [cpu]):
                self.put(f"/sys/devices/system/cpu/cpu{one}/topology/thread_siblings_list", siblings)
        self.put("/proc/self/status", f"Name:\tlockstep\nPid:\t4711\nCpus_allowed_list:\t0-{cores * threads - 1}\n"
                                      "Mems_allowed_list:\t0")
        self.put("/proc/self/limits",
                 "Limit                     Soft Limit           Hard Limit           Units     \n"
                 "Max cpu time              unlimited            unlimited            seconds   \n"
                 "Max stack size            8388608              unlimited            bytes     \n"
                 "Max core file size        0                    unlimited            bytes     \n"
                 "Max processes             4126000              4126000              processes \n"
                 f"Max open files            {nofile:<20} {max(nofile, 1048576):<20} files     \n"
                 f"Max locked memory         {memlock:<20} {memlock:<20} bytes     \n"
                 "Max pending signals       4126000              4126000              signals   ")
        self.put("/proc/self/cgroup", cgroup)
        self.put("/sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc")
        self.mounts += ["25 22 0:23 / /dev/shm rw,nosuid,nodev shared:4 - tmpfs tmpfs rw,inode64",
                        "30 22 259:3 / /tmp rw,relatime shared:5 - xfs /dev/nvme1n1 rw,attr2"]
        self.rooms["/dev/shm"] = (shm, shm, 264000000, 263999990)
        self.rooms["/tmp"] = (3840000000000, 3700000000000, 1875000000, 1874000000)
        self.put("/proc/modules", "nvidia_uvm 4890624 18 - Live 0x0000000000000000 (POE)\n"
                                  "nvidia 61239296 512 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)")
        self.folder("/tmp")
        self.folder("/dev/shm")

    def nvidia(self, gpus, version="535.161.08", model="NVIDIA H800", open_module=False):
        """gpus: list of (pci path, numa)"""
        kind = f"Open Kernel Module for x86_64  {version}  Release Build" if open_module else \
            f"x86_64 Kernel Module  {version}  Sat Feb 17 22:55:48 UTC 2024"
        self.put("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {kind}\nGCC version:  gcc version 12.3.0")
        for minor, (path, numa) in enumerate(gpus):
            self.pci(path, numa, "nvidia")
            address = path.rsplit("/", 1)[1]
            self.put(f"/proc/driver/nvidia/gpus/{address}/information",
                     f"Model: \t\t {model}\nIRQ:   \t\t {200 + minor}\n"
                     f"GPU UUID: \t GPU-0d1f6b3c-2f6e-4b7a-9a51-0000000000{minor:02d}\nVideo BIOS: \t 96.00.89.00.01\n"
                     f"Bus Type: \t PCIe\nBus Location: \t {address}\nDevice Minor: \t {minor}")
            self.put(f"/dev/nvidia{minor}", "")

    def write(self, name):
        self.network()
        self.put("/proc/self/mountinfo", "\n".join(self.mounts))
        import json
        self.put("/statvfs.json", json.dumps({p: dict(zip(("total", "free", "inodes", "inodes_free"), r))
                                              for p, r in self.rooms.items()}))
        (HERE / (name + ".tree")).write_text("\n".join(self.lines) + "\n")


# A GPU and its card share a switch; four switches hang on each socket.
SWITCHES = ["15", "26", "37", "56", "97", "a7", "b7", "d7"]


def below_switch(bus, slot, device):
    n = int(bus, 16)
    return (f"pci0000:{bus}/0000:{bus}:01.0/0000:{n + 1:02x}:00.0/0000:{n + 2:02x}:{slot:02x}.0/"
            f"0000:{n + 3 + device:02x}:00.0")


def ib_port(lid, guid, rate="400 Gb/sec (4X NDR)", state="4: ACTIVE", phys="5: LinkUp", sm="0x1"):
    return dict(state=state, phys=phys, rate=rate, layer="InfiniBand", lid=hex(lid), sm_lid=sm,
                gids=[(0, f"fe80::a088:c203:12:{guid:x}", "IB/RoCE v1", None)])


def h800(down=False):
    m = Machine("8 x H800, 8 NDR cards beside the GPUs, an HDR card for storage, 25 GbE for everything else"
                if not down else "the same kind of machine with trouble: two ports down, one without a subnet manager")
    m.base("gpu-a17" if not down else "gpu-a18", topology=not down)
    m.nvidia([(below_switch(b, 0, 0), i // 4) for i, b in enumerate(SWITCHES)])
    order = 0
    for i, bus in enumerate(SWITCHES):
        if i == 4:  # storage sits between, as the kernel numbers it by bus
            m.hca("mlx5_4", "pci0000:64/0000:64:01.0/0000:65:00.0", 0,
                  [ib_port(77, 0x99, rate="200 Gb/sec (4X HDR)")], model="MT4123", fw="20.39.1002", netdevs=["ib4"])
            m.interface("ib4", type=32, mtu=2044, speed=200000, device="pci0000:64/0000:64:01.0/0000:65:00.0")
            order += 1
        name = f"mlx5_{order}"
        order += 1
        port = ib_port(100 + i, 0x10 + i)
        if down and i == 2:
            port = ib_port(0, 0x10 + i, rate="10 Gb/sec (4X SDR)", state="1: DOWN", phys="2: Polling", sm="0x0")
        if down and i == 3:
            port = ib_port(0, 0x10 + i, rate="10 Gb/sec (4X SDR)", state="1: DOWN", phys="3: Disabled", sm="0x0")
        if down and i == 6:
            port = ib_port(0, 0x10 + i, state="2: INIT", sm="0x0")
        m.hca(name, below_switch(bus, 1, 1), i // 4, [port], netdevs=[f"ib{order - 1}"])
        m.interface(f"ib{order - 1}", type=32, mtu=2044, speed=400000 if port["phys"] == "5: LinkUp" else None,
                    state="up" if port["state"] == "4: ACTIVE" else "down", device=below_switch(bus, 1, 1),
                    carrier=1 if port["state"] == "4: ACTIVE" else 0)
    m.interface("eno1", speed=25000, device="pci0000:00/0000:00:1c.0/0000:02:00.0", driver="ice")
    m.interface("eno2", flags=0x1002, state="down", device="pci0000:00/0000:00:1c.0/0000:02:00.1", driver="ice")
    m.address("eno1", "10.20.1.17/22" if not down else "10.20.1.18/22")
    m.address("eno1", "fe80::3eec:efff:fe0a:1117/64")
    m.address("ib4", "172.16.4.17/16" if not down else "172.16.4.18/16")
    m.route("eno1", "0.0.0.0/0", "10.20.0.1", 100)
    m.route("ib4", "192.168.200.0/24", "172.16.0.1")
    m.put("/proc/modules", "nvidia_peermem 16384 0 - Live 0x0000000000000000 (POE)\n"
                           "nvidia 61239296 512 nvidia_peermem,nvidia_uvm, Live 0x0000000000000000 (POE)\n"
                           "ib_uverbs 163840 3 mlx5_ib,rdma_ucm, Live 0x0000000000000000")
    if down:
        m.put("/var/log/dmesg",
              "[   12.000000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.161.08\n"
              "[90211.113000] NVRM: Xid (PCI:0000:29:00): 63, pid='<unknown>', name=<unknown>, Row Remapper: New row\n"
              "[91000.500000] NVRM: GPU at PCI:0000:3a:00: GPU-0d1f6b3c-2f6e-4b7a-9a51-000000000002\n"
              "[91000.500100] NVRM: Xid (PCI:0000:3a:00): 79, pid=12345, name=python, GPU has fallen off the bus.\n"
              "[91000.600000] NVRM: Xid (PCI:0000:3a:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 "
              "(Node Reboot Required)")
    m.write("h800-8ib" if not down else "h800-down-ports")


def roce_port(gids, rate="200 Gb/sec (4X HDR)", state="4: ACTIVE", phys="5: LinkUp"):
    return dict(state=state, phys=phys, rate=rate, layer="Ethernet", gids=gids)


def roce():
    m = Machine("4 x A100 with 4 RoCE cards whose GID tables differ: v1 and v2, IPv4, IPv6, link-local, one VLAN")
    m.base("roce-03", model="AMD EPYC 7763 64-Core Processor", cores=128, memory=1056000000, kernel="5.14.0-362.el9.x86_64",
           os="Rocky Linux 9.3 (Blue Onyx)", memlock=65536, nofile=1024)
    cards = ["01", "41", "81", "c1"]
    m.nvidia([(below_switch(b, 0, 0), i // 2) for i, b in enumerate(cards)], "550.54.15", "NVIDIA A100-SXM4-80GB", True)
    v1, v2 = "IB/RoCE v1", "RoCE v2"
    for i, bus in enumerate(cards):
        dev = f"ens{i + 1}np0"
        local, v4, v6 = f"fe80::ba3f:d2ff:fe00:{i + 1}", f"::ffff:10.1.{i}.3", f"2001:db8:{i}::3"
        tables = [
            [(0, local, v1, dev), (1, local, v2, dev), (2, v4, v1, dev), (3, v4, v2, dev)],
            # An IPv6 address came before the IPv4 one.
            [(0, local, v1, dev), (1, local, v2, dev), (2, v6, v1, dev), (3, v6, v2, dev), (4, v4, v1, dev), (5, v4, v2, dev)],
            # IPv4 only on a VLAN.
            [(0, local, v1, dev), (1, local, v2, dev), (4, v4, v1, dev + ".30"), (5, v4, v2, dev + ".30")],
            # No IPv4 at all.
            [(0, local, v1, dev), (1, local, v2, dev), (2, v6, v1, dev), (3, v6, v2, dev)],
        ]
        path = below_switch(bus, 1, 1)
        m.hca(f"mlx5_{i}", path, i // 2, [roce_port(tables[i])], model="MT4123", fw="20.38.1900", netdevs=[dev])
        m.interface(dev, mtu=9000, speed=200000, device=path, numa=i // 2, driver="mlx5_core")
        m.address(dev, local + "/64")
        if i == 2:
            m.interface(dev + ".30", mtu=9000, speed=200000, devtype="vlan", lower=[dev], iflink=m.index - 1)
        if i in (0, 1):
            m.address(dev, f"10.1.{i}.3/24")
        if i == 2:
            m.address(dev + ".30", "10.1.2.3/24")
        if i in (1, 3):
            m.address(dev, v6 + "/64")
    m.interface("eno8303", speed=1000, device="pci0000:e0/0000:e0:05.1/0000:e1:00.0", numa=1, driver="tg3")
    m.address("eno8303", "192.168.10.3/24")
    m.route("eno8303", "0.0.0.0/0", "192.168.10.1", 100)
    m.route("ens1np0", "10.1.0.0/16", "10.1.0.1", 50)
    m.write("roce-mixed-gids")


def ethernet():
    m = Machine("two consumer cards, 10 GbE, an unused second port, no RDMA, no NVIDIA driver modules for peers")
    m.base("desk-2", topology=True, model="AMD Ryzen Threadripper PRO 5975WX 32-Cores", nodes=1, cores=32, memory=263000000,
           shm=134000000000, memlock=8388608, nofile=1024, kernel="6.8.0-45-generic", os="Ubuntu 24.04.1 LTS")
    m.nvidia([("pci0000:00/0000:00:01.1/0000:01:00.0", -1), ("pci0000:40/0000:40:01.1/0000:41:00.0", -1)],
             "560.35.03", "NVIDIA GeForce RTX 4090", True)
    m.interface("enp5s0f0", speed=10000, device="pci0000:00/0000:00:02.1/0000:05:00.0", numa=-1, driver="ixgbe")
    m.interface("enp5s0f1", state="down", speed=-1, carrier=0, device="pci0000:00/0000:00:02.1/0000:05:00.1", numa=-1,
                driver="ixgbe")
    m.interface("wlp6s0", devtype="wlan", state="dormant", device="pci0000:00/0000:00:02.2/0000:06:00.0", numa=-1)
    m.address("enp5s0f0", "192.168.1.42/24")
    m.address("enp5s0f0", "fe80::a236:9fff:fe11:42/64")
    m.route("enp5s0f0", "0.0.0.0/0", "192.168.1.1", 100)
    m.route("enp5s0f0", "::/0", "fe80::1", 1024)
    m.write("ethernet-only")


def bonded():
    m = Machine("two ports of a RoCE card bonded (mlx5_bond_0), the cluster's network on a VLAN above the bond")
    m.base("bond-9", kernel="5.10.134-16.al8.x86_64", os="Alibaba Cloud Linux 3 (Soaring Falcon)")
    m.nvidia([(below_switch(b, 0, 0), i // 4) for i, b in enumerate(SWITCHES)], "535.161.08", "NVIDIA H20")
    a = "pci0000:64/0000:64:02.0/0000:65:00.0"
    b = "pci0000:64/0000:64:02.0/0000:65:00.1"
    v1, v2 = "IB/RoCE v1", "RoCE v2"
    local = "fe80::ba3f:d2ff:fe00:99"
    m.hca("mlx5_bond_0", a, 0, [roce_port([(0, local, v1, "bond0"), (1, local, v2, "bond0"),
                                           (2, "::ffff:33.5.8.9", v1, "bond0.100"), (3, "::ffff:33.5.8.9", v2, "bond0.100")])],
          netdevs=["ens1f0np0"], model="MT4129")
    for name, path in (("ens1f0np0", a), ("ens1f1np1", b)):
        m.interface(name, flags=0x1803, mtu=9000, speed=200000, device=path, master="bond0", driver="mlx5_core")
    m.interface("bond0", flags=0x1403, mtu=9000, speed=400000, devtype="bond", lower=["ens1f0np0", "ens1f1np1"],
                extra=[("bonding/slaves", "ens1f0np0 ens1f1np1"), ("bonding/mode", "802.3ad 4")])
    m.interface("bond0.100", mtu=9000, speed=400000, devtype="vlan", lower=["bond0"], iflink=m.index - 1)
    m.put("/sys/class/net/bonding_masters", "bond0")
    m.address("bond0.100", "33.5.8.9/24")
    m.address("bond0", local + "/64")
    m.route("bond0.100", "0.0.0.0/0", "33.5.8.247")
    m.write("bonded")


def pod():
    m = Machine("a pod: one half of a veth pair, no RDMA devices, 64 MiB of shared memory, limits of cgroup v2")
    m.base("trainer-worker-0", nodes=2, cores=64, memory=1056000000, shm=67108864, memlock=65536,
           cgroup="0::/", kernel="6.1.112-122.189.amzn2023.x86_64", os="Ubuntu 22.04.3 LTS")
    m.nvidia([("pci0000:10/0000:10:1c.0", 0), ("pci0000:10/0000:10:1d.0", 0)], "550.127.05", "NVIDIA A10G", True)
    m.interface("eth0", mtu=9001, speed=10000, iflink=77)
    m.address("eth0", "10.0.37.201/32")
    m.routes.pop()  # the network of a /32 is no route
    m.routes.append(("eth0", "169.254.1.1/32", None, 0))
    m.route("eth0", "0.0.0.0/0", "169.254.1.1")
    m.put("/sys/fs/cgroup/memory.max", 137438953472)
    m.put("/sys/fs/cgroup/memory.current", 42949672960)
    m.put("/sys/fs/cgroup/memory.stat", "anon 10737418240\nfile 32212254720\ninactive_file 21474836480")
    m.put("/sys/fs/cgroup/pids.max", 1024)
    m.put("/sys/fs/cgroup/pids.current", 37)
    m.put("/sys/fs/cgroup/cpu.max", "1250000 100000")
    m.folder("/var/run/secrets/kubernetes.io/serviceaccount")
    m.mounts[0] = "1200 900 0:310 / / rw,relatime - overlay overlay rw,lowerdir=/var/lib/containerd/1,upperdir=/var/lib/containerd/2"
    m.write("pod-without-rdma")


def cgroup_v1():
    m = Machine("a Docker container on a host with cgroup v1: limits in three hierarchies, a proxy path in /proc")
    path = "/docker/3f9c2a7d5e"
    m.base("3f9c2a7d5e01", nodes=1, cores=40, kernel="4.18.0-553.el8_10.x86_64", os="Debian GNU/Linux 12 (bookworm)",
           memory=395000000, shm=67108864, memlock=65536,
           cgroup=f"12:pids:{path}\n11:memory:{path}\n10:cpuset:{path}\n4:cpu,cpuacct:{path}\n1:name=systemd:{path}")
    m.interface("eth0", speed=10000, iflink=12)
    m.address("eth0", "172.17.0.2/16")
    m.route("eth0", "0.0.0.0/0", "172.17.0.1")
    m.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", 68719476736)
    m.put("/sys/fs/cgroup/memory/memory.usage_in_bytes", 8589934592)
    m.put("/sys/fs/cgroup/memory/memory.stat", "cache 4294967296\ninactive_file 1\ntotal_inactive_file 4294967296")
    m.put("/sys/fs/cgroup/pids/pids.max", "max")
    m.put("/sys/fs/cgroup/pids/pids.current", 12)
    m.put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", 850000)
    m.put("/sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", 100000)
    m.put("/.dockerenv", "")
    m.write("cgroup-v1")


def bridges():
    m = Machine("a host full of container networks: two Docker bridges, veth halves, flannel, a VPN; one real card")
    m.base("ci-gpu-1", nodes=1, cores=16, memory=131000000, memlock=8388608, kernel="6.1.0-25-amd64",
           os="Debian GNU/Linux 12 (bookworm)")
    m.nvidia([("pci0000:00/0000:00:01.0/0000:01:00.0", -1)], "535.183.01", "NVIDIA GeForce RTX 3090")
    m.interface("docker0", state="down", flags=0x1003, carrier=0, devtype="bridge", extra=[("bridge/stp_state", 0)])
    m.interface("br-5f2e9d3c1a77", devtype="bridge", speed=10000, extra=[("bridge/stp_state", 0)], lower=["veth8a1c2d3"])
    m.interface("veth8a1c2d3", speed=10000, master="br-5f2e9d3c1a77", iflink=40)
    m.interface("flannel.1", mtu=1450, state="unknown", devtype="vxlan")
    m.interface("tun0", type=65534, mtu=1420, state="unknown", extra=[("tun_flags", "0x1001")])
    m.interface("dummy0", flags=0x82, state="down")
    m.interface("enp3s0", speed=2500, device="pci0000:00/0000:00:1c.2/0000:03:00.0", numa=-1, driver="igc")
    m.address("docker0", "172.17.0.1/16")
    m.address("br-5f2e9d3c1a77", "172.18.0.1/16")
    m.address("flannel.1", "10.42.0.0/32")
    m.routes.pop()
    m.route("flannel.1", "10.42.1.0/24", "10.42.1.0")
    m.address("tun0", "10.8.0.6/24")
    m.address("enp3s0", "10.9.8.21/24")
    m.route("enp3s0", "0.0.0.0/0", "10.9.8.1", 100)
    m.route("tun0", "10.0.0.0/8", "10.8.0.1", 50)
    m.write("docker-bridges")


for make in (h800, lambda: h800(True), roce, ethernet, bonded, pod, cgroup_v1, bridges):
    make()
