#!/usr/bin/env python3
"""What an idle node costs: five nodes on loopback, connected to each other, nothing to do.

    pip install blake3
    cargo build --release -p souk
    tests/idle.py [--minutes 10]

Prints, for each node, resident memory and processor time over the span, of the process itself and of the runners it
keeps ready. Memory that several processes share (the program's code) is counted in each: `Pss` divides it.
"""
import argparse, os, pathlib, shutil, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from latency import Node, ROOT


def children(pid):
    return [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] + [
        int(word)
        for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
        if task.name != str(pid)
        for word in (task / "children").read_text().split()
    ]


def processor(pid):
    """Seconds of processor time so far."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid):
    """Resident and proportional set size, in MB."""
    lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    sizes = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return sizes["Rss"] * 1024 / 1e6, sizes["Pss"] * 1024 / 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--souk", default=str(ROOT / "target/release/souk"))
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="souk-idle-"))
    nodes = []
    try:
        nodes.append(Node(args.souk, folder, "n0", "both", None))
        network = nodes[0].home / "config/network.toml"
        for number in range(1, 5):
            nodes.append(Node(args.souk, folder, f"n{number}", "both", network))
        for _ in range(600):
            peers = [sum(peer["connected"] for peer in node.get("/v1/peers")) for node in nodes]
            if min(peers) >= 4:
                break
            time.sleep(0.1)
        pids = [node.process.pid for node in nodes]
        kept = [children(pid) for pid in pids]
        began, before = time.time(), [processor(pid) for pid in pids]
        while time.time() - began < args.minutes * 60:
            time.sleep(1)
        span = time.time() - began
        print(f"{span:.0f} s idle")
        for number, pid in enumerate(pids):
            rss, pss = memory(pid)
            used = processor(pid) - before[number]
            runners = [memory(child)[1] for child in kept[number]]
            print(f"node {number}: {peers[number]} peers, {rss:.1f} MB resident ({pss:.1f} proportional), "
                  f"{used:.2f} s = {used / span:.3%} of a core; "
                  f"{len(runners)} runners ready, {sum(runners):.1f} MB proportional in all")
    finally:
        for node in nodes:
            node.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
