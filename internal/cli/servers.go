package cli

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"fleetdrill/gateway"
	"fleetdrill/internal/supervise"
	"fleetdrill/mockworker"
)

// server is what a long-running command gets: its log and a context that ends at the first signal.
type server struct {
	ctx context.Context
	log *slog.Logger
}

// serve opens the log, checks the configuration (an error there is the caller's and nothing started) and
// runs until the first interrupt or termination signal.
func serve(stderr io.Writer, logs *logFlags, check, run func(*server) error) error {
	log, flush, err := logs.open(stderr)
	if err != nil {
		return err
	}
	defer flush()
	ctx, stop := untilSignal()
	defer stop()
	s := &server{ctx, log}
	if err := check(s); err != nil {
		return err
	}
	return run(s)
}

func workerCommand() *cobra.Command {
	var cfg mockworker.Config
	var logs logFlags
	c := &cobra.Command{
		Use:   "worker",
		Short: "One or more mock engines",
		Example: `  fleetdrill worker --port 8000 --admin-port 8001 --profile fast \
    --kv-events-config '{"enable_kv_cache_events": true, "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558"}'
  curl -s http://127.0.0.1:8000/v1/completions -H 'content-type: application/json' \
    -d '{"model": "mock-8b", "prompt": "hello", "max_tokens": 4}'`,
		Args: noModel,
		RunE: func(c *cobra.Command, _ []string) error {
			return serve(c.ErrOrStderr(), &logs, func(s *server) error {
				cfg.Log = s.log
				return usage(mockworker.Validate(cfg))
			}, func(s *server) error { return mockworker.Run(s.ctx, cfg) })
		},
	}
	mockworker.AddFlags(c.Flags(), &cfg)
	logs.add(c)
	c.Flags().SetNormalizeFunc(underscores)
	c.SetFlagErrorFunc(carryOver)
	c.AddCommand(workerFitCommand())
	return withConfig(c)
}

func gatewayCommand() *cobra.Command {
	cfg := gateway.DefaultConfig()
	var logs logFlags
	c := &cobra.Command{
		Use:   "gateway",
		Short: "The KV-aware gateway",
		Example: `  fleetdrill gateway --port 8080 --admin-port 8081 --policy cache_aware \
    --worker 'id=w1,url=http://127.0.0.1:8000,events=tcp://127.0.0.1:5557,replay=tcp://127.0.0.1:5558,block_size=16'
  curl -s http://127.0.0.1:8081/routing/state`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return serve(c.ErrOrStderr(), &logs, func(s *server) error {
				cfg.Log = s.log
				return usage(cfg.Validate())
			}, func(s *server) error { return gateway.Run(s.ctx, cfg) })
		},
	}
	gateway.AddFlags(c.Flags(), &cfg)
	logs.add(c)
	return withConfig(c)
}

// watchdogCommand is the lab's own: it undoes the cleanup journal when the lab dies.
func watchdogCommand() *cobra.Command {
	var journal string
	c := &cobra.Command{Use: "watchdog", Hidden: true, Args: noArgs, RunE: func(*cobra.Command, []string) error {
		return supervise.RunWatchdog(os.Stdin, journal)
	}}
	c.Flags().StringVar(&journal, "journal", "", "cleanup journal to undo at the end of standard input")
	return c
}
