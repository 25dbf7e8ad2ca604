package gateway

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"fleetdrill/internal/contract"
)

func TestParseWorkerFlag(t *testing.T) {
	got, err := ParseWorkerFlag("id=w1,url=http://127.0.0.1:8000/,events=tcp://127.0.0.1:5557,replay=tcp://127.0.0.1:5558,ranks=2,block_size=32")
	want := contract.WorkerSpec{ID: "w1", URL: "http://127.0.0.1:8000", KVBlockSize: 32,
		KVEvents: &contract.KVEventsSpec{Endpoint: "tcp://127.0.0.1:5557", ReplayEndpoint: "tcp://127.0.0.1:5558", Ranks: 2}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	got, err = ParseWorkerFlag("url=http://h:1")
	if diff := cmp.Diff(contract.WorkerSpec{ID: "h:1", URL: "http://h:1", KVBlockSize: 16}, got); err != nil || diff != "" {
		t.Errorf("defaults: %v (-want +got):\n%s", err, diff)
	}
}

func TestParseWorkerFlagErrors(t *testing.T) {
	for in, want := range map[string]string{
		"":                       `"" is not key=value`,
		"id=w1":                  `url "" is not http://host:port`,
		"url=https://h:1":        "is not http://host:port",
		"url=http://h":           "is not http://host:port",
		"url=http://h:1,rank=1":  `unknown key "rank" (known: id, url, events, replay, ranks, block_size)`,
		"url=http://h:1,ranks=0": "ranks=0 is not a whole number above zero",
		"url=http://h:1,ranks=99,events=tcp://h:1":                  "ranks 99 is not in 1..64",
		"url=http://h:1,block_size=x":                               "block_size=x is not a whole number",
		"url=http://h:1,block_size=99999":                           "block size 99999 is not in 1..4096",
		"url=http://h:1,events=h:1":                                 `endpoint "h:1" is not tcp://host:port`,
		"url=http://h:1,replay=tcp://h:1":                           "replay without events",
		"url=http://h:1,events=tcp://h:65535,ranks=2":               "port 65535 plus rank 1 is not a port",
		"url=http://h:1,events=tcp://h:1,replay=tcp://h:no,ranks=1": "is not a port",
	} {
		if _, err := ParseWorkerFlag(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", in, err, want)
		}
	}
}

func TestFlagsFillTheConfig(t *testing.T) {
	c := DefaultConfig()
	fs := pflag.NewFlagSet("gateway", pflag.ContinueOnError)
	AddFlags(fs, &c)
	err := fs.Parse([]string{"--worker", "id=w1,url=http://h:1", "--worker", "id=w2,url=http://h:2", "--policy", "round_robin",
		"--worker-stall-secs", "0.3", "--worker-wedge-secs", "0", "--handicap", "liveness-off"})
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Workers) != 2 || c.Policy != "round_robin" || c.WorkerStall != 300*time.Millisecond || c.WorkerWedge != 0 || len(c.Handicaps) != 1 {
		t.Errorf("config %+v", c)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	if err := fs.Parse([]string{"--worker", "id=w1,url=http://h:3"}); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Errorf("a second w1: %v", err)
	}
}

func TestValidateNamesEveryFault(t *testing.T) {
	c := DefaultConfig()
	c.Policy, c.KVIndex, c.Host, c.Handicaps, c.WorkerStall = "best", "tree", "0.0.0.0", []string{"deaf"}, 0
	err := c.Validate()
	if err == nil {
		t.Fatal("nothing was wrong")
	}
	for _, want := range []string{`policy "best"`, `kv index "tree"`, "needs --admin-token", `handicap "deaf"`, "above zero"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	c = DefaultConfig()
	c.Host, c.AdminToken = "0.0.0.0", "t"
	if err := c.Validate(); err != nil {
		t.Errorf("off loopback with a token: %v", err)
	}
}
