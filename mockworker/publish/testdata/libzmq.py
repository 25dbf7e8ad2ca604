"""One socket of the real libzmq, driven by JSON lines on standard input.

    libzmq.py KIND ENDPOINT [OPTION=VALUE...]

It connects and prints {"version": ...}. Then one command per line, and one line of answer each:
    {"send": ["hex", ...]}              one message, given as its frames: {}
    {"recv": 5, "quiet": 300}           up to so many messages, until none has come for so many milliseconds:
                                        {"frames": [["hex", ...], ...]}, or {"error": ...} of the socket;
                                        the end of a replay is the last one in any case
    {"recv": 5, "quiet": 300, "seqs": true}
                                        their sequence numbers only, -1 for the end of a replay: {"seqs": [...]}
    {"disconnects": true}               {"disconnects": N}, the connections lost so far
It ends with its input.
"""
import json
import sys

import zmq
from zmq.utils.monitor import recv_monitor_message


END = b"\xff" * 8


def recv(socket, n, quiet):
    """Up to n messages; the end of a replay is the last one in any case."""
    out = []
    try:
        while len(out) < n and socket.poll(quiet):
            out.append(socket.recv_multipart())
            if len(out[-1]) > 1 and out[-1][-2] == END:
                break
    except zmq.ZMQError as err:
        return out, err.strerror
    return out, None


def answer(socket, monitor, lost, command):
    if "send" in command:
        socket.send_multipart([bytes.fromhex(f) for f in command["send"]])
        return {}
    if "disconnects" in command:
        while monitor.poll(0):
            lost[0] += recv_monitor_message(monitor)["event"] == zmq.EVENT_DISCONNECTED
        return {"disconnects": lost[0]}
    messages, error = recv(socket, command["recv"], command["quiet"])
    if error:
        return {"error": error}
    if command.get("seqs"):
        # The number is the last frame but one, live and in both shapes of a replay.
        return {"seqs": [int.from_bytes(m[-2], "big", signed=True) for m in messages]}
    return {"frames": [[f.hex() for f in m] for m in messages]}


def main():
    kind, endpoint, *options = sys.argv[1:]
    context = zmq.Context()
    socket = context.socket(getattr(zmq, kind))
    for option in options:
        name, value = option.split("=")
        socket.setsockopt(getattr(zmq, name), value.encode() if name == "SUBSCRIBE" else int(value))
    monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    socket.connect(endpoint)
    print(json.dumps({"version": zmq.zmq_version()}), flush=True)
    lost = [0]
    for line in sys.stdin:
        print(json.dumps(answer(socket, monitor, lost, json.loads(line))), flush=True)
    socket.disable_monitor()
    context.destroy(linger=0)


main()
