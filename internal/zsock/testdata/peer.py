"""A libzmq peer for the interoperability tests: one socket, driven by JSON lines on standard input.

    peer.py KIND bind|connect ENDPOINT [OPTION=VALUE...]

It prints {"endpoint": ...} first. Then one command per line:
    {"send": ["hex", ...], "times": 3}   one message, given as its frames, so many times
    {"recv": 5}                          prints so many messages, one line {"frames": ["hex", ...]} each
    {"disconnects": true}                prints {"disconnects": N}, the connections lost so far
It ends at the end of the input, or by itself after a minute without a message that was asked for.
"""
import json
import sys

import zmq
from zmq.utils.monitor import recv_monitor_message


def say(**what):
    print(json.dumps(what), flush=True)


def main():
    kind, how, endpoint, *options = sys.argv[1:]
    context = zmq.Context()
    socket = context.socket(getattr(zmq, kind))
    socket.linger = 0
    socket.rcvtimeo = socket.sndtimeo = 60_000
    for option in options:
        name, value = option.split("=")
        socket.setsockopt(getattr(zmq, name), value.encode() if name == "SUBSCRIBE" else int(value))
    monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    getattr(socket, how)(endpoint)
    say(endpoint=socket.getsockopt(zmq.LAST_ENDPOINT).rstrip(b"\0").decode())
    lost = 0
    for line in sys.stdin:
        command = json.loads(line)
        for _ in range(command.get("times", 1) if "send" in command else 0):
            socket.send_multipart([bytes.fromhex(f) for f in command["send"]])
        for _ in range(command.get("recv", 0)):
            say(frames=[f.hex() for f in socket.recv_multipart()])
        if "disconnects" in command:
            while monitor.poll(0):
                lost += recv_monitor_message(monitor)["event"] == zmq.EVENT_DISCONNECTED
            say(disconnects=lost)
    socket.disable_monitor()
    context.destroy(linger=0)


main()
