package cli

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"fleetdrill/gateway/policy"
	measure "fleetdrill/replayer/bench"
	"fleetdrill/replayer/bench/drive"
)

func benchCommand() *cobra.Command {
	return group("bench", "Benchmarks: the index, its decisions, engines", benchIndexCommand(), benchLadderCommand(), benchScalingCommand(),
		benchChurnCommand(), benchMemoryCommand(), benchDecisionCommand(), benchWorkerCommand(), benchTrialCommand())
}

// benchTrialCommand is what a bench starts itself as for every trial.
func benchTrialCommand() *cobra.Command {
	return &cobra.Command{Use: "trial", Hidden: true, Args: noArgs, RunE: func(c *cobra.Command, _ []string) error {
		return measure.RunTask(c.InOrStdin(), c.OutOrStdout())
	}}
}

// benchFlags are those that all benches have.
type benchFlags struct {
	indexes []string
	quick   bool
	json    bool
}

func (f *benchFlags) add(c *cobra.Command, indexes []string) {
	c.Flags().StringSliceVar(&f.indexes, "index", indexes, "indexes, the first of which the others are compared with; null shows the harness's own ceiling")
	c.Flags().BoolVar(&f.quick, "quick", false, "a first look in minutes: fewer and shorter trials")
	c.Flags().BoolVar(&f.json, "json", false, "print the report as JSON")
}

// text is a report that can be printed.
type text interface{ Text() string }

func (f *benchFlags) print(out io.Writer, report text) error {
	if f.json {
		return printJSON(out, report)
	}
	if _, err := io.WriteString(out, report.Text()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// run checks the flags that all benches have and runs one until it ends or is interrupted.
func (f *benchFlags) run(c *cobra.Command, do func(ctx context.Context, run measure.Runner) (text, error)) error {
	if err := drive.CheckNames(f.indexes); err != nil {
		return usage(fmt.Errorf("--index: %w", err))
	}
	run, err := measure.Processes("bench", "trial")
	if err != nil {
		return err
	}
	ctx, stop := untilSignal()
	defer stop()
	report, err := do(ctx, run)
	switch {
	case ctx.Err() != nil:
		return exitWith(exitSIGINT)
	case err != nil:
		return err
	}
	return f.print(c.OutOrStdout(), report)
}

// progress prints lines to standard error.
func (f *benchFlags) progress(c *cobra.Command) func(string) {
	return func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }
}

// replayFlags are those of the benches that replay a corpus.
type replayFlags struct {
	benchFlags
	corpus corpusFlags
	lanes  int
	trials int
	plot   string
}

func (f *replayFlags) add(c *cobra.Command, indexes []string) {
	f.benchFlags.add(c, indexes)
	f.corpus.add(c)
	c.Flags().IntVar(&f.lanes, "lanes", 1, "event lanes; the issuer wants a core of its own")
	c.Flags().IntVar(&f.trials, "trials", 0, "trials of a series (default 20, quick 3)")
	c.Flags().StringVar(&f.plot, "plot", "", "SVG file to write: lookup latency against offered load")
}

// options opens the corpus and fills in what trials need. The caller closes what it returns.
func (f *replayFlags) options(c *cobra.Command, run measure.Runner) (o measure.Options, done func(), err error) {
	if f.lanes < 1 || f.lanes > 64 || f.trials < 0 {
		return o, nil, usage(fmt.Errorf("--lanes %d --trials %d: want 1 to 64 lanes and at least 1 trial", f.lanes, f.trials))
	}
	o = measure.Options{Indexes: f.indexes, Lanes: f.lanes, Run: run, Progress: f.progress(c)}
	o.Pace(f.quick)
	if f.trials > 0 {
		o.Trials, o.Discards = f.trials, max(f.trials, o.Discards)
	}
	o.Path, o.Corpus, err = f.corpus.open(o.Progress)
	if err != nil {
		return o, nil, err
	}
	return o, func() { _ = o.Corpus.Close() }, nil
}

// draw writes the picture, if one is wanted.
func (f *replayFlags) draw(trials []*drive.Result) error {
	if f.plot == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.plot), 0o755); err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	if err := os.WriteFile(f.plot, []byte(measure.Plot(trials)), 0o644); err != nil {
		return fmt.Errorf("writing the picture: %w", err)
	}
	return nil
}

func benchIndexCommand() *cobra.Command {
	var f replayFlags
	var shape string
	var offered float64
	c := &cobra.Command{
		Use:   "index",
		Short: "Sustained and overloaded rates, lookup latency and memory of the index",
		Long: `Replays a corpus of lookups and engine events into every index, open loop, each trial in a fresh process.
First the rate is bracketed at which three trials in a row keep up; then every index is measured at that rate and
under overload, in turns, with the first index once more as a control. Trials during which others used more than
half a core are made again. docs/bench.md has the definitions.

--shape llmd measures what llm-d-kv-cache's own bench does instead: a million blocks, prompts of 512.`,
		Example: `  fleetdrill bench index --quick                              # the built-in trace, minutes
  fleetdrill bench index --trace conversation_trace.jsonl --index chain,maptree --plot latency.svg
  fleetdrill bench index --trace conversation_trace.jsonl --duplication 20 --offered 8 --index chain
  fleetdrill bench index --corpus smg.bin --index chain,null --json | jq '.rows[] | {index, sustained}'
  fleetdrill bench index --shape llmd --quick`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if c.Flags().Changed("offered") && !(offered > 0 && !math.IsInf(offered, 0)) {
				return usage(fmt.Errorf("--offered %v: want a rate above 0, in million block ops/s", offered))
			}
			switch shape {
			case "llmd":
				return f.run(c, func(ctx context.Context, run measure.Runner) (text, error) {
					return measure.PeerAll(ctx, run, f.indexes, f.quick, f.progress(c))
				})
			case "mooncake":
			default:
				return usage(fmt.Errorf("--shape %q: want mooncake or llmd", shape))
			}
			return f.run(c, func(ctx context.Context, run measure.Runner) (text, error) {
				o, done, err := f.options(c, run)
				if err != nil {
					return nil, err
				}
				defer done()
				if offered > 0 {
					return f.once(ctx, c, o, offered*1e6)
				}
				r, err := measure.Index(ctx, o)
				if err != nil {
					return nil, err
				}
				return r, f.draw(r.Trials)
			})
		},
	}
	f.add(c, drive.Contestants())
	c.Flags().Float64Var(&offered, "offered", 0, "offer this rate alone, in million block ops/s: no bracket, the whole corpus, one trial per index unless --trials says more")
	c.Flags().StringVar(&shape, "shape", "mooncake", "mooncake: a replayed trace; llmd: the shape of llm-d-kv-cache's bench")
	return withConfig(c)
}

// once is the bench at one rate, on the whole corpus however long that takes.
func (f *replayFlags) once(ctx context.Context, c *cobra.Command, o measure.Options, offered float64) (text, error) {
	if !c.Flags().Changed("trials") {
		o.Trials = 1
	}
	o.Longest = 0
	r, err := measure.Once(ctx, o, offered)
	if err != nil {
		return nil, err
	}
	return r, f.draw(r.Trials)
}

func benchLadderCommand() *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use:   "ladder",
		Short: "Five windows, from easy to too much: who keeps up, and with which latencies",
		Example: `  fleetdrill bench ladder --quick --plot ladder.svg
  fleetdrill bench ladder --trace conversation_trace.jsonl --lanes 2`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c, func(ctx context.Context, run measure.Runner) (text, error) {
				o, done, err := f.options(c, run)
				if err != nil {
					return nil, err
				}
				defer done()
				r, err := measure.Ladder(ctx, o, measure.Windows(o.Corpus.Totals.BlockOps(), o.Lanes))
				if err != nil {
					return nil, err
				}
				return r, f.draw(r.Trials)
			})
		},
	}
	f.add(c, drive.Contestants())
	return withConfig(c)
}

func benchScalingCommand() *cobra.Command {
	var f replayFlags
	c := &cobra.Command{
		Use:   "scaling",
		Short: "8 to 128 workers, 1 to as many lanes as cores, one and two shards",
		Long: `Measures the chain index under overload with the first 8, 16, 32, 64 and 128 workers of the corpus, on one lane
and more, as one index and as two shards. "from linear" is the capacity over lanes times that of one lane,
"from fewest workers" that over the capacity with 8 workers, each less 1.`,
		Example: `  fleetdrill bench scaling --quick
  fleetdrill bench scaling --trace conversation_trace.jsonl --lanes 2 --json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c, func(ctx context.Context, run measure.Runner) (text, error) {
				o, done, err := f.options(c, run)
				if err != nil {
					return nil, err
				}
				defer done()
				r, err := measure.Scaling(ctx, o, f.lanes)
				if err != nil {
					return nil, err
				}
				return r, f.draw(r.Trials)
			})
		},
	}
	f.add(c, []string{"chain"})
	c.Flags().Lookup("lanes").DefValue = fmt.Sprint(runtime.NumCPU())
	f.lanes = runtime.NumCPU()
	_ = c.Flags().MarkHidden("index") // it is always the chain index
	return withConfig(c)
}

func benchChurnCommand() *cobra.Command {
	var f benchFlags
	s := measure.DefaultChurn("")
	c := &cobra.Command{
		Use:   "churn",
		Short: "10^7 events of stores, answers and evictions: is the index what it was?",
		Long: `A fleet of caches serves random pieces of shared chains; each request goes to its best holder, which stores what
it lacks, appends an answer block by block and evicts. Events count once the pools are full: an index that grows
is not one that ages. The index is looked at in between: runs, their length, runs
walked per lookup, lookup latency; scores are compared with the caches themselves. Printed are the first sample and
the last; --json has all.`,
		Example: `  fleetdrill bench churn --quick
  fleetdrill bench churn --index chain,maptree --json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if f.quick && !c.Flags().Changed("events") {
				s.Events = 1_000_000
			}
			if f.quick && !c.Flags().Changed("cache") {
				s.Cache = 5000
			}
			if err := s.Check(); err != nil {
				return usage(err)
			}
			return f.run(c, func(ctx context.Context, run measure.Runner) (text, error) {
				return measure.ChurnAll(ctx, run, f.indexes, s, f.progress(c))
			})
		},
	}
	f.add(c, []string{"chain"})
	fs := c.Flags()
	fs.IntVar(&s.Events, "events", s.Events, "stores and removals to live through once the pools are full (quick: 1000000)")
	fs.IntVar(&s.Workers, "workers", s.Workers, "workers")
	fs.IntVar(&s.Chains, "chains", s.Chains, "chains that requests are pieces of")
	fs.IntVar(&s.Cache, "cache", s.Cache, "blocks of a worker's pool (quick: 5000)")
	fs.IntVar(&s.Answer, "answer", s.Answer, "blocks that each request appends one by one")
	fs.Uint64Var(&s.Seed, "seed", s.Seed, "decides every choice")
	return withConfig(c)
}

func benchMemoryCommand() *cobra.Command {
	var f benchFlags
	c := &cobra.Command{
		Use:   "memory",
		Short: "Bytes per membership, with 128 holders on every chain and with one to four",
		Example: `  fleetdrill bench memory
  fleetdrill bench memory --index chain --json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return f.run(c, func(ctx context.Context, run measure.Runner) (text, error) {
				return measure.MemoryAll(ctx, run, f.indexes, f.quick, f.progress(c))
			})
		},
	}
	f.add(c, drive.Contestants())
	return withConfig(c)
}

func benchDecisionCommand() *cobra.Command {
	var f benchFlags
	workers, policies := []int{128, 1024}, []string{policy.CacheAware}
	c := &cobra.Command{
		Use:   "decision",
		Short: "A placement, lookup and policy, 10,000 times a second on a full fleet",
		Long: `Fills the engines of a fleet, then places requests of sessions, their beginnings and new ones at 10,000 a second
with the gateway's own index, fleet state and policy. A decision is lookup and policy on a ready chain; the lookup
alone and the hashing of the prompt are measured beside it.`,
		Example: `  fleetdrill bench decision --quick
  fleetdrill bench decision --workers 128 --policy cache_aware,least_load --index chain,positional`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			for _, n := range workers {
				if n < 1 || n > 4096 {
					return usage(fmt.Errorf("--workers %d: want 1 to 4096", n))
				}
			}
			for _, name := range policies {
				if _, err := policy.New(name, 1); err != nil {
					return usage(fmt.Errorf("--policy: %w, want some of %s", err, strings.Join(policy.Names, ", ")))
				}
			}
			return f.run(c, func(ctx context.Context, run measure.Runner) (text, error) {
				return measure.DecisionAll(ctx, run, f.indexes, policies, workers, f.quick, f.progress(c))
			})
		},
	}
	f.add(c, []string{"chain", "positional"})
	c.Flags().IntSliceVar(&workers, "workers", workers, "fleet sizes")
	c.Flags().StringSliceVar(&policies, "policy", policies, "placement policies: "+strings.Join(policy.Names, ", "))
	return withConfig(c)
}
