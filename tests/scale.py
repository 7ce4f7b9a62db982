#!/usr/bin/env python3
"""Submit to first output against the number of nodes: 3, 10, 30 and 100 real nodes on this machine, over loopback.

    pip install blake3
    cargo build --release -p souk
    tests/scale.py [--nodes 3,10,30,100] [--runs 50]

By standing ask and by auction, as souk does it (sixteen invitations), and by an auction to which every provider is
invited: what a market costs in which all bid on all. One node rents, the others sell; all are processes of their own and
share this machine's processors, so processor time a job (of all nodes together) stands beside wall time. Measured is a market
at rest: before, hundreds of nodes that start at once on two processors keep these busy for a while.

Where the nodes lie on a disk, a file system that has just removed many files makes new ones slowly (ext4 does for minutes),
and the later rows pay for the earlier ones: TMPDIR=/dev/shm leaves the disk out of the comparison.
"""
import argparse, pathlib, shutil, sys, tempfile, time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from idle import processor
from latency import ROOT, Node, one, spec

EVERYBODY = 10_000


class Crowd:
    """`count` nodes that know each other's offers; `invites` as in the network file."""

    def __init__(self, souk, count, invites):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="souk-scale-"))
        self.nodes = []
        try:
            first = Node(souk, self.folder, "p1", "provider", None, invites=invites)
            self.nodes.append(first)
            network = first.home / "config/network.toml"
            for number in range(2, count):
                self.nodes.append(Node(souk, self.folder, f"p{number}", "provider", network))
            self.renter = Node(souk, self.folder, "renter", "renter", network)
            self.nodes.append(self.renter)
            self.offers(count - 1)
            module = (ROOT / "examples/hello/hello.wasm").read_bytes()
            self.module = module
            path = f"/v1/blobs/{spec(module, 'Ask')['module']['hash']}"
            put = self.renter.ask(self.renter.connect(), "PUT", path, module)
            put.read()
            assert put.status in (200, 201), put.status
            self.settle()
        except BaseException:
            self.close()
            raise

    def used(self):
        """Seconds of processor time of all nodes so far."""
        return sum(processor(node.process.pid) for node in self.nodes)

    def settle(self):
        """Waits until the nodes have got to know each other: then they take little of a processor."""
        until = time.time() + 300
        while time.time() < until:
            before = self.used()
            time.sleep(3)
            if (self.used() - before) / 3 < 0.05 + 0.002 * len(self.nodes):
                return
        print("the nodes are still busy with each other after five minutes", file=sys.stderr)

    def offers(self, wanted):
        """Waits until the renter knows all offers."""
        until = time.time() + 180
        while (known := self.renter.get("/v1/status")["offers"]) < wanted:
            if time.time() > until:
                sys.exit(f"the renter knows {known} of {wanted} offers after three minutes")
            time.sleep(0.2)

    def measure(self, mode, runs):
        job = spec(self.module, mode)
        # Every provider compiles the module when it first runs it; nobody is measured at that.
        for _ in range(min(3 * len(self.nodes), 60)):
            one(self.renter, job)
        before = self.used()
        found = sorted(first for first, _ in (one(self.renter, job) for _ in range(runs)) if first is not None)
        used = self.used() - before
        pick = lambda share: found[min(len(found) - 1, int(len(found) * share))]
        return pick(.5), pick(.95), used / runs * 1e3

    def close(self):
        for node in self.nodes:
            node.process.terminate()
        for node in self.nodes:
            node.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="3,10,30,100")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--souk", default=str(ROOT / "target/release/souk"))
    args = parser.parse_args()
    counts = [int(word) for word in args.nodes.split(",")]
    base = {}
    print(f"{'nodes':>5}  {'way':<22} {'p50':>10} {'p95':>10} {'processor a job':>16}   against {counts[0]} nodes")
    for count in counts:
        for invites, ways in ((16, (("Ask", "standing ask"), ("Auction", "auction, 16 invited"))),
                              (EVERYBODY, (("Auction", "auction, all invited"),))):
            crowd = Crowd(args.souk, count, invites)
            try:
                for mode, name in ways:
                    p50, p95, used = crowd.measure(mode, args.runs)
                    first = base.setdefault(name, (p50, used))
                    print(f"{count:>5}  {name:<22} {p50:7.2f} ms {p95:7.2f} ms {used:13.2f} ms   "
                          f"wall {p50 / first[0]:.2f}, processor {used / first[1]:.2f}", flush=True)
            finally:
                crowd.close()


if __name__ == "__main__":
    main()
