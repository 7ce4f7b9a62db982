#!/usr/bin/env python3
"""Submit to first output, over loopback, by standing ask and by auction, beside the floors of this machine.

    cargo build --release && pip install blake3 && tests/latency.py [--runs 200] [--souk target/release/souk]

What is measured: from the moment the node has answered POST /v1/jobs (the job is durable) to the first log byte on the
job's event stream, as a client in another process sees it. Peers are connected, the module is compiled. Two real nodes,
a provider and a renter, in a folder of their own, on loopback only. Quote medians and ratios: machines are noisy.
"""
import argparse, base64, http.client, json, os, pathlib, secrets, shutil, signal, socket, statistics, subprocess, sys, tempfile, time

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
    def __init__(self, souk, folder, name, role, network):
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
        else:
            self.run("network", "join", str(network))
        self.log = open(self.home / "log", "w")
        self.process = subprocess.Popen([souk, "--home", str(self.home), "up"], stdout=self.log, stderr=self.log)
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
        subprocess.run([self.souk, "--home", str(self.home), *words], check=True, capture_output=True)

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
    print(f"{name:<44} p50 {pick(.5):8.3f} ms   p95 {pick(.95):8.3f} ms   min {values[0]:8.3f} ms   n {len(values)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--souk", default=str(ROOT / "target/release/souk"))
    args = parser.parse_args()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="souk-bench-"))
    nodes = []
    try:
        provider = Node(args.souk, folder, "provider", "provider", None)
        nodes.append(provider)
        renter = Node(args.souk, folder, "renter", "renter", provider.home / "config/network.toml")
        nodes.append(renter)
        for _ in range(600):
            if renter.get("/v1/status")["offers"]:
                break
            time.sleep(0.05)
        module = (ROOT / "examples/hello/hello.wasm").read_bytes()
        job = spec(module, "Ask")
        c = renter.connect()
        put = renter.ask(c, "PUT", f"/v1/blobs/{job['module']['hash']}", module)
        put.read()
        assert put.status in (200, 201), put.status
        for mode, name in (("Ask", "standing ask"), ("Auction", "auction")):
            job = spec(module, mode)
            for _ in range(10):
                one(renter, job)
            found = [one(renter, job) for _ in range(args.runs)]
            row(f"submit to first output, {name}", [f for f, _ in found if f is not None])
            row(f"submit to end of job, {name}", [t for _, t in found])
        # Floors: what a client and a disk of this machine cost at least.
        c = renter.connect()
        def timed(act):
            start = time.perf_counter(); act(); return (time.perf_counter() - start) * 1e3
        row("floor: GET over loopback", [timed(lambda: renter.ask(c, "GET", "/v1/network").read()) for _ in range(args.runs)])
        with open(folder / "sync", "wb") as file:
            def sync():
                file.write(b"x" * 512); file.flush(); os.fdatasync(file.fileno())
            row("floor: append of 512 bytes and fdatasync", [timed(sync) for _ in range(args.runs)])
        peers = renter.get("/v1/peers")
        print("floor: round trip between the nodes (rounded up):", [p.get("rtt_ms") for p in peers if p["connected"]], "ms")
    finally:
        for node in nodes:
            node.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
