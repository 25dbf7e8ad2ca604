package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"fleetdrill/internal/logsink"
)

// Main runs the command line and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	root := newRoot(stdout, stderr)
	root.SetArgs(args)
	err := root.Execute()
	var e *exitError
	if err != nil && (!errors.As(err, &e) || e.err != nil) {
		fmt.Fprintln(stderr, "fleetdrill:", err)
	}
	return exitCode(err)
}

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := group("fleetdrill", "Drills for KV-aware LLM gateways, on mock engines",
		workerCommand(), gatewayCommand(), upCommand(), drillCommand(), reportCommand(), incidentCommand(), oracleCommand(), replayCommand(), eventsCommand(), traceCommand(), benchCommand(), versionCommand(), watchdogCommand())
	root.Args = cobra.ArbitraryArgs // cobra's own check of a root's arguments is no usage error
	root.Long = `fleetdrill stands up a fleet of mock vLLM engines, puts a KV-aware gateway in front of them,
breaks things on purpose and says with numbers whether routing reacted as it must.`
	root.Example = `  fleetdrill drill run scenarios/matrix/engine-killed.yaml   # one drill, with a report
  fleetdrill up --workers 4                                  # a fleet and a gateway until ctrl-C
  fleetdrill oracle verify                                   # the gateway's index against the engines`
	root.SilenceUsage, root.SilenceErrors = true, true
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w; see `%s --help`", err, c.CommandPath()))
	})
	return root
}

// noArgs refuses arguments as a usage error.
func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("%s takes no argument, got %q; see `%s --help`", c.CommandPath(), args[0], c.CommandPath()))
	}
	return nil
}

// group is a command that only holds others: called alone it shows its help, with a wrong name it errs.
func group(use, short string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, RunE: func(c *cobra.Command, args []string) error {
		if len(args) > 0 {
			near := ""
			if names := c.SuggestionsFor(args[0]); len(names) > 0 {
				near = fmt.Sprintf(" (did you mean %q?)", names[0])
			}
			return usage(fmt.Errorf("unknown command %q for %q%s; see `%s --help`", args[0], c.CommandPath(), near, c.CommandPath()))
		}
		return c.Help()
	}}
	c.SuggestionsMinimumDistance = 2 // cobra's own for commands that it refuses itself
	c.AddCommand(subs...)
	return c
}

func versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Version, commit and Go version", Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		commit := "unknown"
		if info, ok := debug.ReadBuildInfo(); ok {
			for _, s := range info.Settings {
				if s.Key == "vcs.revision" {
					commit = s.Value
				}
			}
		}
		_, err := fmt.Fprintf(c.OutOrStdout(), "fleetdrill %s, commit %s, %s\n", version, commit, runtime.Version())
		return err
	}}
}

// version is the release the tree is on its way to.
const version = "0.1.0-dev"

// logFlags are the flags of a server's log.
type logFlags struct {
	level  string
	format string
}

func (f *logFlags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.level, "log-level", "info", "least level logged: debug, info, warn or error")
	c.Flags().StringVar(&f.format, "log-format", "text", "text or json")
}

// logFlush is how long an ending server waits for its log to be written.
const logFlush = time.Second

// open starts the asynchronous log on w; call the returned function last.
func (f *logFlags) open(w io.Writer) (*slog.Logger, func(), error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.level)); err != nil {
		return nil, nil, usage(fmt.Errorf("--log-level %q: want debug, info, warn or error", f.level))
	}
	if f.format != "text" && f.format != "json" {
		return nil, nil, usage(fmt.Errorf("--log-format %q: want text or json", f.format))
	}
	log, sink := logsink.New(w, logsink.Options{Level: level, JSON: f.format == "json"})
	return log, func() {
		ctx, cancel := context.WithTimeout(context.Background(), logFlush)
		defer cancel()
		_ = sink.Close(ctx)
	}, nil
}

// untilSignal is a context that ends at the first interrupt or termination signal.
func untilSignal() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}
