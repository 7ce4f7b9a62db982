#!/usr/bin/env python3
"""Submit to first output, over loopback, by standing ask and by auction, beside the floors of this machine.

    pip install blake3
    cargo build --release -p souk -p souk-sandbox --bins --examples
    tests/latency.py [--runs 200]

Where the time goes, by leaving steps out, needs a node that can (and that nobody should trade with):

    cargo build --release -p souk --features ablation --target-dir target/ablation
    tests/latency.py --ablation target/ablation/release/souk

What is measured: from the moment the node has answered POST /v1/jobs (the job is durable) to the first log byte on the
job's event stream, as a client in another process sees it. Peers are connected, the module is compiled. Two real nodes,
a provider and a renter, in a folder of their own, on loopback only. Quote medians and ratios: machines are noisy.
"""
import argparse, base64, http.client, json, os, pathlib, re, secrets, shutil, signal, socket, subprocess, sys, tempfile, time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def free_ports(n):
    held = [socket.socket() for _ in range(n)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


class Node:
    def __init__(self, souk, folder, name, role, network, without="", invites=None):
        self.environment = {**os.environ, "SOUK_ABLATE": without}
        self.souk, self.home = souk, folder / name
        (self.home / "config").mkdir(parents=True)
        port, api = free_ports(2)
        text = f"""version = 1
[node]
name = "{name}"
role = "{role}"
profile = "lan"
[network]
listen = ["/ip4/127.0.0.1/udp/{port}/quic-v1", "/ip4/127.0.0.1/tcp/{port}"]
[api]
listen = "127.0.0.1:{api}"
"""
        (self.home / "config/souk.toml").write_text(text)
        if network is None:
            self.run("network", "new", "--name", "bench", "--open")
            if invites is not None:
                file = self.home / "config/network.toml"
                file.write_text(re.sub(r"invites = \d+", f"invites = {invites}", file.read_text()))
        else:
            self.run("network", "join", str(network))
        self.log = open(self.home / "log", "w")
        self.process = subprocess.Popen([souk, "--home", str(self.home), "up"], stdout=self.log, stderr=self.log,
                                        env=self.environment)
        self.api = api
        for _ in range(600):
            token = self.home / "data/token"
            if token.exists() and self.alive(token.read_text().strip()):
                return
            time.sleep(0.05)
        sys.exit(f"{name} does not answer: {(self.home / 'log').read_text()}")

    def alive(self, token):
        self.token = token
        try:
            return self.get("/v1/status") is not None
        except OSError:
            return False

    def run(self, *words):
        subprocess.run([self.souk, "--home", str(self.home), *words], check=True, capture_output=True, env=self.environment)

    def connect(self):
        c = http.client.HTTPConnection("127.0.0.1", self.api)
        c.connect()
        c.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return c

    def ask(self, connection, method, path, body=None):
        headers = {"Authorization": f"Bearer {self.token}"}
        if body is not None and not isinstance(body, bytes):
            body, headers["Content-Type"] = json.dumps(body), "application/json"
        connection.request(method, path, body, headers)
        return connection.getresponse()

    def get(self, path):
        c = self.connect()
        answer = self.ask(c, "GET", path)
        return json.loads(answer.read())

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def base32(raw):
    return base64.b32encode(raw).decode().rstrip("=").lower()


def spec(module, mode):
    from blake3 import blake3
    return {
        "name": "hello", "labels": {},
        "module": {"hash": base32(blake3(module).digest()), "len": len(module), "name": "hello.wasm", "entry": "_start"},
        "args": ["bench"], "env": [], "inputs": [], "outputs": [{"path": "/out", "to": ""}],
        "requirement": {"runtime": "Wasm", "isolation": "W0", "cpu": "1", "memory": "32MB", "disk": "10MB", "gpu": None,
                        "regions": []},
        "terms": {"tier": "Bronze", "pay": "Delivered", "preemptible": True, "notice": "30s", "timeout": "10s",
                  "stop_grace": "1s", "stdout": "1MB", "offline": "0s", "retention": "1h", "verify": "None"},
        "market": {"max_rate": "0.05 CR/h", "budget": "0.01 CR", "mode": mode, "local": "First", "allow": [], "deny": []},
        "sla": {"start_within": None, "deadline": None, "reliability": None, "latency": None, "loss": None},
        "retry": {"attempts": 3, "on": ["NoCapacity", "Preempted", "Lost", "ProviderFault"]},
        "array": {"tasks": [{}], "max_parallel": 1, "max_failures": 0},
    }


def one(node, job):
    """Milliseconds from the answer of the POST to the first log byte, and to the end of the job."""
    c = node.connect()
    answer = node.ask(c, "POST", "/v1/jobs", {"spec": job, "nonce": secrets.token_hex(16)})
    body = json.loads(answer.read())
    accepted = time.perf_counter()
    if answer.status != 200:
        sys.exit(f"refused: {body}")
    stream = node.ask(c, "GET", f"/v1/jobs/{body['id']}/events?logs=1")
    first = None
    for line in stream:
        if not line.startswith(b"data:"):
            continue
        event = json.loads(line[5:])
        if event["kind"] == "log" and first is None:
            first = (time.perf_counter() - accepted) * 1e3
        if event["kind"] == "state" and event["state"] in ("succeeded", "failed", "cancelled", "expired"):
            if event["state"] != "succeeded":
                sys.exit(f"job {event}")
            break
    total = (time.perf_counter() - accepted) * 1e3
    c.close()
    return first, total


def row(name, values):
    values = sorted(values)
    pick = lambda share: values[min(len(values) - 1, int(len(values) * share))]
    print(f"{name:<44} p50 {pick(.5):8.3f} ms   p95 {pick(.95):8.3f} ms   min {values[0]:8.3f} ms   n {len(values)}", flush=True)
    return pick(.5)


class Market:
    """A provider and a renter that know each other; the module is where it is needed."""

    def __init__(self, souk, without=""):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="souk-bench-"))
        self.nodes = []
        self.module = (ROOT / "examples/hello/hello.wasm").read_bytes()
        try:
            provider = Node(souk, self.folder, "provider", "provider", None, without)
            self.nodes.append(provider)
            self.renter = Node(souk, self.folder, "renter", "renter", provider.home / "config/network.toml", without)
            self.nodes.append(self.renter)
            for _ in range(600):
                if self.renter.get("/v1/status")["offers"]:
                    break
                time.sleep(0.05)
            hash = spec(self.module, "Ask")["module"]["hash"]
            put = self.renter.ask(self.renter.connect(), "PUT", f"/v1/blobs/{hash}", self.module)
            put.read()
            assert put.status in (200, 201), put.status
        except BaseException:
            self.close()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for node in self.nodes:
            node.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def measure(self, mode, runs):
        job = spec(self.module, mode)
        for _ in range(10):
            one(self.renter, job)
        found = [one(self.renter, job) for _ in range(runs)]
        return [first for first, _ in found if first is not None], [total for _, total in found]


def timed(act):
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1e3


def floors(market, runs, bare):
    """What a client, a disk, a round trip and a call cost at least on this machine."""
    renter = market.renter
    c = renter.connect()
    row("floor: GET over loopback", [timed(lambda: renter.ask(c, "GET", "/v1/network").read()) for _ in range(runs)])
    with open(market.folder / "sync", "wb") as file:
        def sync():
            file.write(b"x" * 512)
            file.flush()
            os.fdatasync(file.fileno())
        row("floor: append of 512 bytes and fdatasync", [timed(sync) for _ in range(runs)])
    peer = next(p["peer"] for p in renter.get("/v1/peers") if p["connected"])
    trips = [json.loads(renter.ask(c, "GET", f"/v1/peers/{peer}/ping").read())["micros"] / 1e3 for _ in range(runs)]
    row("floor: libp2p round trip", trips)
    if os.path.exists(bare):
        called = json.loads(subprocess.run([bare, str(ROOT / "examples/hello/hello.wasm"), str(runs)], check=True,
                                           capture_output=True).stdout)
        p50, p95 = called["p50_us"] / 1e3, called["p95_us"] / 1e3
        print(f"{'floor: bare wasmtime call':<44} p50 {p50:8.3f} ms   p95 {p95:8.3f} ms{'':<20}n {called['runs']}")
    else:
        print(f"floor: bare wasmtime call: {bare} is not built")


def ablation(souk, runs):
    """The same with steps left out: what each costs is the difference to the first line."""
    whole = {}
    steps = ["", "signatures", "journal", "sandbox", "signatures,journal,sandbox"]
    for without in steps:
        with Market(souk, without) as market:
            for mode, name in MODES:
                label = "nothing left out" if not without else f"without {without.replace(',', ', ')}"
                p50 = row(f"{name}, {label}", market.measure(mode, runs)[0])
                whole.setdefault(mode, p50)
                if without:
                    print(f"{'':<44} {p50 - whole[mode]:+.3f} ms ({p50 / whole[mode]:.2f} of the whole)")


MODES = (("Ask", "standing ask"), ("Auction", "auction"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--souk", default=str(ROOT / "target/release/souk"))
    parser.add_argument("--bare", default=str(ROOT / "target/release/examples/bare_call"))
    parser.add_argument("--ablation", metavar="SOUK", help="a node built with --features ablation")
    args = parser.parse_args()
    if args.ablation:
        return ablation(args.ablation, args.runs)
    with Market(args.souk) as market:
        for mode, name in MODES:
            first, total = market.measure(mode, args.runs)
            row(f"submit to first output, {name}", first)
            row(f"submit to end of job, {name}", total)
        floors(market, args.runs, args.bare)


if __name__ == "__main__":
    main()
