package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"fleetdrill/replayer/trace"
)

func traceCommand() *cobra.Command {
	return group("trace", "Request traces: what is in them, and new ones", traceStatCommand(), traceGenerateCommand())
}

func traceStatCommand() *cobra.Command {
	var rows string
	var asJSON bool
	var o trace.Options
	c := &cobra.Command{
		Use:   "stat [FILE]",
		Short: "Lengths, rates and the reuse that a trace allows",
		Long: `Reads a Mooncake trace (JSON lines: timestamp in ms, input_length, output_length, hash_ids of 512-token
blocks; .gz and .zst by suffix, - for standard input) and prints its lengths and rates, how much of the
prompts could be reused by one unbounded cache, by eight under round robin and under longest match, and by
LRU pools, and how rows share heads and stamps. Without FILE it reads the trace that is built in.

A row that cannot be read ends the command with its place and exit code 4; --skip-bad counts such rows.`,
		Example: `  fleetdrill trace stat                                      # the built-in trace
  fleetdrill trace stat conversation_trace.jsonl --rows 0-3999
  fleetdrill trace generate --rows 4000 --span 20m | fleetdrill trace stat - --json`,
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			var err error
			if o.Rows, err = trace.ParseRows(rows); err != nil {
				return usage(fmt.Errorf("--rows: %w", err))
			}
			r, err := openTrace(args, c.InOrStdin(), o)
			if err != nil {
				return usage(err)
			}
			defer r.Close()
			s, err := trace.Measure(r)
			if err != nil {
				return usage(err)
			}
			return printStat(c.OutOrStdout(), s, asJSON)
		},
	}
	f := c.Flags()
	f.StringVar(&rows, "rows", "", "only rows A-B, both inclusive and from 0 (A- for the rest)")
	f.BoolVar(&o.SkipBad, "skip-bad", false, "leave out rows that cannot be read and count them")
	f.BoolVar(&asJSON, "json", false, "print the figures as JSON")
	return withConfig(c)
}

// openTrace opens the trace that the arguments name: a file, standard input, or none for the built-in one.
func openTrace(args []string, stdin io.Reader, o trace.Options) (*trace.Reader, error) {
	switch {
	case len(args) > 1:
		return nil, fmt.Errorf("one trace at a time, got %d; see `fleetdrill trace stat --help`", len(args))
	case len(args) == 0:
		return trace.Default(o)
	case args[0] == "-":
		return trace.NewReader(stdin, "standard input", o), nil
	}
	return trace.Open(args[0], o)
}

func printStat(out io.Writer, s trace.Stat, asJSON bool) error {
	var err error
	if asJSON {
		err = json.NewEncoder(out).Encode(s)
	} else {
		_, err = io.WriteString(out, s.Text())
	}
	if err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}

func traceGenerateCommand() *cobra.Command {
	s := trace.DefaultShape()
	var path string
	c := &cobra.Command{
		Use:   "generate",
		Short: "Make a trace of the Mooncake shape from a seed",
		Long: `Writes a trace with the traits of the public conversation trace: conversations that grow by turns and
fork, heads that many of them share, every prompt beginning with the same block, stamps in slots of 3 s,
clients that send in bursts, and lengths with a heavy tail. Equal flags give equal rows on every machine.
The defaults give the trace that is built in.`,
		Example: `  fleetdrill trace generate --seed 7 --rows 4000 --span 20m --out t.jsonl.zst
  fleetdrill trace generate --rows 1000 --span 5m --max-input 32000 | fleetdrill trace stat -`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.Check(); err != nil {
				return usage(err)
			}
			if path == "" {
				return trace.Generate(c.OutOrStdout(), s)
			}
			w, err := trace.Create(path)
			if err != nil {
				return usage(err)
			}
			return errors.Join(trace.Generate(w, s), w.Close())
		},
	}
	f := c.Flags()
	f.Uint64Var(&s.Seed, "seed", s.Seed, "decides every choice")
	f.IntVar(&s.Rows, "rows", s.Rows, "number of rows")
	f.DurationVar(&s.Span, "span", s.Span, "time in which the rows come")
	f.IntVar(&s.Clients, "clients", s.Clients, "clients that send the rows, each in bursts of its own")
	f.IntVar(&s.MaxInput, "max-input", s.MaxInput, "longest prompt, in tokens")
	f.StringVar(&path, "out", "", "file to write, compressed when it ends in .gz or .zst (default: standard output)")
	return withConfig(c)
}
