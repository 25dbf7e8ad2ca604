package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"fleetdrill/internal/tail"
	"fleetdrill/mockworker/blockhash"
)

func eventsCommand() *cobra.Command {
	return group("events", "An engine's KV-event stream", eventsTailCommand())
}

// tailFlags are the flags of events tail that Run does not take as they are.
type tailFlags struct {
	tail.Options
	record string
	seeds  []string
	json   bool
}

func eventsTailCommand() *cobra.Command {
	var f tailFlags
	c := &cobra.Command{
		Use:   "tail URL",
		Short: "Show an engine's KV events, with gaps, restarts, layout and hash algorithm",
		Long: `Subscribes to the event stream of any engine, real or mock, over ZMQ (tcp://HOST:PORT, ipc://PATH) or gRPC
(grpc://HOST:PORT, SubscribeKvEvents of vLLM, SGLang and others), and prints one line per batch: number,
source, the engine's time of day (UTC), layout (form of the events and elements of the batch), rank, and
per kind the blocks, the events and the first hashes. What else it sees stands behind two dashes: gaps,
duplicates, restarts, lost connections, a layout or hash algorithm that shows for the first time.

With --replay, batches from before the subscription and those of gaps are fetched and shown where they
belong; a gRPC port is its own replay. Ends at ctrl-C or after --count batches; exit 0. A publisher that never answers: exit 5.

The hash algorithm is found by recomputing stores that begin a chain: sha256, sha256_cbor, xxhash and
xxhash_cbor with the seeds vllm-none-hash, 0 and those of --hash-seed, and SGLang's. An engine that drew a
random seed stays unknown.

A capture holds the messages as they came, with both clocks; docs/events.md has its format.`,
		Example: `  fleetdrill events tail tcp://127.0.0.1:5557 --replay tcp://127.0.0.1:5558
  fleetdrill events tail tcp://10.0.0.7:5557 --count 100 --record capture.jsonl --json
  fleetdrill events tail grpc://127.0.0.1:9000 --replay grpc://127.0.0.1:9000`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := f.check(args); err != nil {
				return usage(fmt.Errorf("%w; see `%s --help`", err, c.CommandPath()))
			}
			ctx, stop := untilSignal()
			defer stop()
			return f.run(ctx, c.OutOrStdout())
		},
	}
	fs := c.Flags()
	fs.StringVar(&f.Replay, "replay", "", "replay endpoint, as tcp://127.0.0.1:5558; of a grpc:// stream the same URL")
	fs.Uint64Var(&f.From, "from", 0, "resume a grpc:// stream behind that batch; 0 = what the engine begins with")
	fs.StringVar(&f.Topic, "topic", "", "only topics that begin so")
	fs.IntVar(&f.Count, "count", 0, "end after so many batches; 0 = at ctrl-C")
	fs.DurationVar(&f.Wait, "wait", 5*time.Second, "how long the publisher may take to answer; 0 = for ever")
	fs.StringVar(&f.record, "record", "", "new file for a capture: JSON lines with the frames in hex and both clocks")
	fs.StringSliceVar(&f.seeds, "hash-seed", nil, "further seed of block hashes to try (the engine's PYTHONHASHSEED)")
	fs.BoolVar(&f.json, "json", false, "print JSON lines")
	return withConfig(c)
}

func (f *tailFlags) check(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("events tail wants one URL, as tcp://127.0.0.1:5557, got %d arguments", len(args))
	}
	f.Events = args[0]
	if err := tail.CheckEndpoint(f.Events); err != nil {
		return err
	}
	if f.Replay != "" {
		if err := tail.CheckEndpoint(f.Replay); err != nil {
			return fmt.Errorf("--replay: %w", err)
		}
	}
	if f.Replay != "" && tail.OverGRPC(f.Replay) != tail.OverGRPC(f.Events) {
		return fmt.Errorf("--replay %s is another transport than %s: gRPC is its own replay, --replay %s", f.Replay, f.Events, f.Events)
	}
	if f.From > 0 && !tail.OverGRPC(f.Events) {
		return errors.New("--from is for grpc:// streams: over ZMQ --replay fetches what was sent before")
	}
	if f.Topic != "" && tail.OverGRPC(f.Events) {
		return errors.New("--topic is for ZMQ streams: gRPC has no topics")
	}
	if f.Count < 0 {
		return fmt.Errorf("--count is %d, must not be negative", f.Count)
	}
	if f.Wait < 0 {
		return fmt.Errorf("--wait is %s, must not be negative", f.Wait)
	}
	return nil
}

func (f *tailFlags) run(ctx context.Context, out io.Writer) (err error) {
	if f.Algorithms, err = hashAlgorithms(f.seeds); err != nil {
		return err
	}
	if f.record != "" {
		file, err := newCapture(f.record)
		if err != nil {
			return usage(err)
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		f.Record = file
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	err = tail.Run(ctx, f.Options, func(l tail.Line) {
		if err := f.print(out, l); err != nil {
			cancel(fmt.Errorf("writing a line: %w", err))
		}
	})
	if cause := context.Cause(ctx); err == nil && cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return err
}

func (f *tailFlags) print(out io.Writer, l tail.Line) error {
	if f.json {
		return json.NewEncoder(out).Encode(l)
	}
	_, err := fmt.Fprintln(out, l)
	return err
}

// newCapture makes the file; one that exists is somebody's capture already.
func newCapture(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, fmt.Errorf("--record: %w", err)
	}
	return file, nil
}

// hashAlgorithms are all that an engine may use, those that engines use by default first.
func hashAlgorithms(seeds []string) ([]tail.Algorithm, error) {
	var out []tail.Algorithm
	for _, seed := range append([]string{blockhash.DefaultSeed, "0"}, seeds...) {
		for _, algo := range []string{"sha256", "sha256_cbor", "xxhash", "xxhash_cbor"} {
			h, err := blockhash.New(algo, seed)
			if err != nil {
				return nil, err
			}
			out = append(out, algorithm(fmt.Sprintf("%s with seed %s", algo, seed), h))
		}
	}
	return append(out, algorithm("SGLang", blockhash.NewSGLang())), nil
}

func algorithm(name string, h *blockhash.Hasher) tail.Algorithm {
	return tail.Algorithm{Name: name, Chain: func(blocks [][]uint32, lora, salt string) []uint64 {
		ints := make([]uint64, len(blocks))
		parent := h.NoneHash()
		for i, block := range blocks {
			parent = h.Next(parent, block, blockhash.Extra{LoRAName: lora, CacheSalt: salt})
			ints[i], salt = parent.EventInt(), ""
		}
		return ints
	}}
}
