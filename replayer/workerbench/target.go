package workerbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/supervise"
)

// target is a running simulator.
type target struct {
	addr   string // host:port of its API
	admin  string // of its admin API, empty for a peer
	events string // ZMQ endpoint, empty without one
	model  string
	pid    int // 0 when it is not known
	stop   func() error
}

// starter starts processes of this binary.
type starter struct {
	exe, dir string
	sup      *supervise.Supervisor
	n        int
}

func newStarter(exe string, log *slog.Logger) (*starter, error) {
	dir, err := os.MkdirTemp("", "fleetdrill-bench-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the bench: %w", err)
	}
	return &starter{exe: exe, dir: dir, sup: supervise.New(supervise.Options{Log: log})}, nil
}

func (s *starter) close() error {
	return errors.Join(s.sup.Close(), os.RemoveAll(s.dir))
}

// benchModel is what the subject's workers serve.
const benchModel = "mock-8b"

// eventsConfig opens event and replay sockets on free ports.
const eventsConfig = `{"enable_kv_cache_events": true, "endpoint": "tcp://*:0", "replay_endpoint": "tcp://*:0"}`

// worker starts one process of workers and waits until it serves. took is from before the fork to the first
// 200 of /health, which is asked for as soon as the ready file names the port.
func (s *starter) worker(ctx context.Context, args ...string) (t target, took time.Duration, err error) {
	s.n++
	ready := filepath.Join(s.dir, fmt.Sprintf("ready-%d.json", s.n))
	began := time.Now()
	child, err := s.sup.Start(supervise.Spec{
		Name: "worker", Path: s.exe,
		Args: append([]string{"worker", "--port", "0", "--admin-port", "0", "--model", benchModel, "--ready-file", ready, "--shutdown-grace", "100ms"}, args...),
	})
	if err != nil {
		return target{}, 0, fmt.Errorf("starting a worker: %w", err)
	}
	file, err := waitReady(ctx, child, ready)
	if err != nil {
		return target{}, 0, errors.Join(err, child.Kill())
	}
	w := file.Workers[0]
	t = target{pid: child.ID().PID, model: benchModel, stop: func() error { return child.Stop(context.Background()) }}
	if t.addr, err = hostPort(w.HTTP); err != nil {
		return t, took, err
	}
	if t.admin, err = hostPort(w.Admin); err != nil {
		return t, took, err
	}
	if len(w.Ranks) > 0 {
		t.events = w.Ranks[0].Events
	}
	_, err = get(ctx, t.addr, "/health")
	return t, time.Since(began), err
}

// readyPoll is short beside the start of a process, which is what is measured.
const readyPoll = 200 * time.Microsecond

func waitReady(ctx context.Context, child *supervise.Child, path string) (f contract.ReadyFile, err error) {
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	for {
		data, err := os.ReadFile(path)
		if err == nil {
			if err = json.Unmarshal(data, &f); err != nil || len(f.Workers) == 0 {
				return f, fmt.Errorf("ready file %s: no workers in it: %w", path, err)
			}
			return f, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return f, fmt.Errorf("waiting for a worker: %w", err)
		}
		select {
		case <-tick.C:
		case <-child.Done():
			return f, fmt.Errorf("worker ended before it served: %s", child.Exit())
		case <-ctx.Done():
			return f, fmt.Errorf("waiting for a worker: %w", ctx.Err())
		}
	}
}

func hostPort(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Port() == "" {
		return "", fmt.Errorf("%q is no URL like http://host:port", raw)
	}
	return u.Host, nil
}

// profile writes a timing profile whose every step takes stepNs, and returns its path.
func (s *starter) profile(name string, stepNs int64) (string, error) {
	const text = `name: %s
about: every step takes the same
step_ns: {value: %d, basis: chosen}
prefill_token_ns: {value: 0, basis: chosen}
decode_seq_ns: {value: 0, basis: chosen}
decode_context_token_ns: {value: 0, basis: chosen}
prefill_token_context_ns: {value: 0, basis: chosen}
num_blocks: {value: 65536, basis: chosen}
block_size: {value: 16, basis: chosen}
max_num_seqs: {value: 4096, basis: chosen}
max_num_batched_tokens: {value: 65536, basis: chosen}
`
	path := filepath.Join(s.dir, name+".yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, text, name, stepNs), 0o600); err != nil {
		return "", fmt.Errorf("writing a timing profile: %w", err)
	}
	return path, nil
}
