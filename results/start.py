"""Start time and idle memory of one mock worker: python3 results/start.py BINARY [RUNS]

Start is from fork to the first 200 of /health, asked for every 0.5 ms; memory is read 1 s later.
"""
import socket
import statistics
import subprocess
import sys
import time

EVENTS = '{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}'


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def healthy(port):
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as s:
            s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            return b" 200 " in s.recv(64)
    except OSError:
        return False


def memory(pid):
    with open(f"/proc/{pid}/status") as f:
        return {k: int(v.split()[0]) / 1024 for k, v in (line.split(":", 1) for line in f if line.startswith(("VmRSS", "RssAnon")))}


def once(binary):
    port = free_port()
    began = time.perf_counter()
    worker = subprocess.Popen([binary, "worker", "--port", str(port), "--kv-events-config", EVENTS], stderr=subprocess.DEVNULL)
    try:
        while not healthy(port):
            time.sleep(0.0005)
        started = (time.perf_counter() - began) * 1e3
        time.sleep(1)
        return started, memory(worker.pid)
    finally:
        worker.terminate()
        worker.wait()


runs = [once(sys.argv[1]) for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 10)]
starts = sorted(s for s, _ in runs)
rss = sorted(m["VmRSS"] for _, m in runs)
anon = sorted(m["RssAnon"] for _, m in runs)
print(f"start to /health 200, ms: median {statistics.median(starts):.1f}, {starts[0]:.1f} to {starts[-1]:.1f}, {len(runs)} runs")
print(f"resident, MB: median {statistics.median(rss):.1f}, of which the process's own {statistics.median(anon):.1f} (the rest is the binary, shared)")
