package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/fit"
)

// fitOptions are the flags of `fleetdrill worker fit`.
type fitOptions struct {
	fit         fit.Options
	profile     string
	out         string
	sensitivity bool
	json        bool
	fleet       fleetOptions
}

const fitLong = `Finds the timing profile with which the mock engine reproduces a recorded run of a real one, and says how
well. RUN is a folder with meta.json (engine arguments, KV blocks where known) and requests.jsonl (per
request: request_id, input_toks, output_toks, queued_ts, first_token_ts, last_token_ts in seconds).

All requests are simulated, with the engine core itself; --fit-on N lets only the first N count in the
search, so that the table shows what the profile predicts of the rest. --profile scores a profile and fits
nothing. --sensitivity says what each size and coefficient is worth.

--published-fleet takes a trace in place of RUN, and sets four simulated engines behind the gateway beside
the public figures of four real ones.`

const fitExample = `  fleetdrill worker fit runs/rtx4090 --fit-on 60                    # twelve figures, real and predicted
  fleetdrill worker fit runs/rtx4090 --out rtx4090.yaml             # a profile of your own
  fleetdrill worker --port 8000 --profile ./rtx4090.yaml            # and an engine with it
  fleetdrill worker fit runs/rtx4090 --profile rtx4090-llama-3.1-8b --json | jq .worst
  fleetdrill worker fit --published-fleet conversation_trace.jsonl  # four engines and the gateway, model / hardware`

func workerFitCommand() *cobra.Command {
	var o fitOptions
	c := &cobra.Command{
		Use:     "fit RUN",
		Short:   "Fit a timing profile to a recorded run",
		Long:    fitLong,
		Example: fitExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.fleet.check(c.Flags().Changed); err != nil {
				return usage(err)
			}
			if o.fleet.on {
				return o.runFleet(args, c.OutOrStdout(), c.ErrOrStderr())
			}
			if len(args) != 1 {
				return usage(fmt.Errorf("want one folder of a recorded run, got %d; see `fleetdrill worker fit --help`", len(args)))
			}
			return o.run(args[0], c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.IntVar(&o.fit.On, "fit-on", 0, "requests that count in the search, the first N; 0 = all. All are simulated")
	f.Uint64Var(&o.fit.Seed, "seed", 1, "decides the directions of the search")
	f.StringVar(&o.profile, "profile", "", "score this profile, a built-in name or a path, and fit nothing")
	f.StringVar(&o.out, "out", "", "write the fitted profile to this file")
	f.BoolVar(&o.sensitivity, "sensitivity", false, "also say what happens when each size and coefficient is off by 10, 20 and 31 %")
	f.BoolVar(&o.json, "json", false, "print the figures as JSON")
	f.IntVar(&o.fit.Sizes.NumBlocks, "num-gpu-blocks-override", 0, "KV blocks of the engine (default: as recorded, or enough for all)")
	f.IntVar(&o.fit.Sizes.BlockSize, "block-size", 0, "tokens of one KV block (default: as recorded, or 16)")
	f.IntVar(&o.fit.Sizes.MaxNumSeqs, "max-num-seqs", 0, "sequences of a step (default: as recorded, or 256)")
	f.IntVar(&o.fit.Sizes.MaxNumBatchedTokens, "max-num-batched-tokens", 0, "tokens of a step (default: as recorded, or 2048)")
	o.fleet.add(c)
	return withConfig(c)
}

// run reads, fits or scores, and prints. Whatever is wrong with the input is the caller's (exit 4).
func (o *fitOptions) run(dir string, stdout, stderr io.Writer) error {
	run, err := o.read(dir)
	if err != nil {
		return usage(err)
	}
	fitted, err := o.fitted(run, stderr)
	if err != nil {
		return err
	}
	report := fitted.Report(filepath.Base(filepath.Clean(dir)), o.name(dir))
	if o.sensitivity {
		report.Sensitivity = fitted.Sensitivity()
	}
	if o.out != "" {
		if err := os.WriteFile(o.out, report.YAML(), 0o644); err != nil {
			return fmt.Errorf("writing the profile: %w", err)
		}
		fmt.Fprintf(stderr, "profile: %s\n", o.out)
	}
	return o.print(stdout, report)
}

func (o *fitOptions) read(dir string) (*fit.Run, error) {
	if o.out != "" && o.profile != "" {
		return nil, errors.New("--out and --profile: a profile that is only scored is written already")
	}
	for name, n := range map[string]int{"num-gpu-blocks-override": o.fit.Sizes.NumBlocks, "block-size": o.fit.Sizes.BlockSize,
		"max-num-seqs": o.fit.Sizes.MaxNumSeqs, "max-num-batched-tokens": o.fit.Sizes.MaxNumBatchedTokens} {
		if n < 0 {
			return nil, fmt.Errorf("--%s %d: must not be negative", name, n)
		}
	}
	run, err := fit.Read(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", dir, err)
	}
	if err := o.fit.Check(run); err != nil {
		return nil, fmt.Errorf("--fit-on: %w", err)
	}
	return run, nil
}

// name is what the fitted profile is called: its file, or the run.
func (o *fitOptions) name(dir string) string {
	switch {
	case o.profile != "":
		return o.profile
	case o.out != "":
		return strings.TrimSuffix(filepath.Base(o.out), ".yaml")
	}
	return strings.ToLower(strings.ReplaceAll(filepath.Base(filepath.Clean(dir)), "_", "-"))
}

func (o *fitOptions) fitted(run *fit.Run, stderr io.Writer) (*fit.Fitted, error) {
	ctx, stop := untilSignal()
	defer stop()
	if o.profile == "" {
		o.fit.Progress = func(round int, worst fit.Error) {
			fmt.Fprintf(stderr, "round %d: worst of what is fitted is %s, %.1f %%\n", round, worst.Figure, worst.Error*100)
		}
		f, err := fit.Fit(ctx, run, o.fit)
		if ctx.Err() != nil {
			return nil, exitWith(exitSIGINT)
		}
		return f, usage(err)
	}
	p, err := engine.LoadProfile(o.profile)
	if err != nil {
		return nil, usage(fmt.Errorf("--profile: %w", err))
	}
	f, err := fit.Score(run, o.fit, p.Timing())
	return f, usage(err)
}

func (o *fitOptions) print(stdout io.Writer, r fit.Report) error {
	var err error
	if o.json {
		err = json.NewEncoder(stdout).Encode(r)
	} else {
		_, err = io.WriteString(stdout, r.Text())
	}
	if err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}
