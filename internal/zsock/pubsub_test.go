package zsock

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// numbered is a message as a vLLM publisher sends it: topic, sequence number, payload.
func numbered(topic string, seq uint64, payload []byte) [][]byte {
	return [][]byte{[]byte(topic), binary.BigEndian.AppendUint64(nil, seq), payload}
}

func seqOf(e SubEvent) uint64 { return binary.BigEndian.Uint64(e.Frames[1]) }

// A subscriber that is up misses nothing that is sent from then on, and only its topic arrives.
func TestPubSub(t *testing.T) {
	pub, endpoint := newBoundPub(t, PubOptions{})
	if !strings.HasPrefix(endpoint, "tcp://127.0.0.1:") {
		t.Errorf("tcp://*:* was bound as %s", endpoint)
	}
	sub := newSub(t, endpoint, SubOptions{Topic: "kv@1"})
	sub.next(t, SubUp)
	const n = 2000
	for i := range uint64(n) {
		pub.Send(numbered("kv@2", i, nil)...)
		pub.Send(numbered("kv@1@model", i, []byte("payload"))...)
	}
	for i := range uint64(n) {
		e := sub.next(t, SubMessage)
		if diff := cmp.Diff(numbered("kv@1@model", i, []byte("payload")), e.Frames); diff != "" {
			t.Fatalf("message %d (-want +got):\n%s", i, diff)
		}
		if e.MonoNs == 0 {
			t.Fatal("a message without a time")
		}
	}
	want := PubStats{Peers: 1, Sent: n}
	if diff := cmp.Diff(want, pub.Stats()); diff != "" {
		t.Errorf("stats (-want +got):\n%s", diff)
	}
}
