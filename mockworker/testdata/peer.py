"""A subscriber and replay client on real libzmq. argv: event endpoint, replay endpoint.

It reads live batches until the last sequence number comes in on stdin, then a full replay. Every payload is
decoded and encoded again by Python's msgpack, which must give the same bytes; a batch seen live must be
replayed with the same bytes. Prints what it saw; any difference is an exception.
"""
import struct
import sys
import threading

import msgpack
import zmq

events, replay = sys.argv[1:]
ctx = zmq.Context()
sub = ctx.socket(zmq.SUB)
sub.setsockopt(zmq.SUBSCRIBE, b"")
sub.connect(events)

last = None


def read_last():
    global last
    last = int(sys.stdin.readline())


threading.Thread(target=read_last, daemon=True).start()


def check(payload):
    batch = msgpack.unpackb(payload, strict_map_key=False)
    assert msgpack.packb(batch) == payload, payload.hex()
    assert len(batch) == 3 and batch[2] == 0, batch
    for event in batch[1]:
        assert list(event)[0] == "type", event


live = {}
while last is None or last not in live:
    if not sub.poll(10):
        continue
    topic, seq, payload = sub.recv_multipart()
    assert topic == b"", topic
    check(payload)
    live[struct.unpack(">Q", seq)[0]] = payload

dealer = ctx.socket(zmq.DEALER)
dealer.connect(replay)
dealer.send_multipart([b"", struct.pack(">Q", 0)])
want = 0
while True:
    assert dealer.poll(5000), "replay stopped after %d batches" % want
    empty, seq, payload = dealer.recv_multipart()
    assert empty == b"", empty
    if seq == b"\xff" * 8:
        assert payload == b"", payload
        break
    assert struct.unpack(">Q", seq)[0] == want, (seq, want)
    check(payload)
    assert live.get(want, payload) == payload, want
    want += 1
print("live %d batches, replayed 0..%d" % (len(live), want - 1))
ctx.destroy(linger=0)
