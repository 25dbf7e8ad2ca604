package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
	"fleetdrill/mockworker/engine"
	"fleetdrill/replayer/live"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/report"
	"fleetdrill/replayer/result"
	"fleetdrill/replayer/sim"
	"fleetdrill/replayer/trace"
)

// replayOptions are the flags of `fleetdrill replay`.
type replayOptions struct {
	rows      string
	skipBad   bool
	plan      plan.Options
	hot       string
	policies  []string
	kvIndex   string
	workers   int
	profile   string
	kvBlocks  int
	blockSize int

	loadInterval          string // as given; loadEvery and loadPush are what it says
	loadEvery, loadMaxAge time.Duration
	loadPush              bool
	loadReport            string
	eventDelay            time.Duration
	hash                  string
	gatewayArgs           []string
	engine                engineOptions

	live, sim        bool
	url, workersFile string
	slo              string
	published        bool
	out              string
	json             bool
}

const replayLong = `Sends the rows of a trace to a fleet, once per policy, and says what came of it: latencies, goodput, and
how much of the prompts the engines had cached beside the best that any placement could have had.

Without TRACE it replays the trace that is built in. A fleet of mock workers and a gateway are started for
each policy; --url replays against a gateway that runs already.

Latencies count from the instant a request was due. A replay whose sender fell behind is invalid (exit 3).`

const replayExample = `  fleetdrill replay --rows 0-199 --speed 3 --workers 4 --profile fast
  fleetdrill replay conversation_trace.jsonl --rows 0-399 --speed 3 --workers 4 --policy round_robin,cache_aware
  fleetdrill replay conversation_trace.jsonl --rows 0-3999 --speed 3 --sim --policy reference_cost,cache_aware
  fleetdrill replay conversation_trace.jsonl --rows 0-399 --speed 3 --json | jq .hit_over_best_holder
  fleetdrill replay --url http://127.0.0.1:8080 --rows 0-99       # the gateway of the last ` + "`fleetdrill up`"

func replayCommand() *cobra.Command {
	var o replayOptions
	c := &cobra.Command{
		Use:     "replay [TRACE]",
		Short:   "Replay a trace against a fleet, and compare with the oracle",
		Long:    replayLong,
		Example: replayExample,
		Args:    cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			slo, err := o.check(c)
			if err != nil {
				return usage(err)
			}
			p, err := o.read(args, c.InOrStdin())
			if err != nil {
				return usage(err)
			}
			return o.run(p, slo, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.add(c)
	return withConfig(c)
}

func (o *replayOptions) add(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.rows, "rows", "", "only rows A-B, both inclusive and from 0 (A- for the rest)")
	f.BoolVar(&o.skipBad, "skip-bad", false, "leave out rows that cannot be read and count them")
	f.Float64Var(&o.plan.Speed, "speed", 1, "how many times faster than the trace requests come")
	f.StringVar(&o.plan.Arrivals, "arrivals", plan.Spread, "spread: rows of one stamp uniformly over their slot; raw: at the stamps")
	f.IntVar(&o.plan.MaxInput, "max-input", 0, "leave out rows with longer prompts, in tokens; 0 = none")
	f.IntVar(&o.plan.MaxOutput, "max-output", plan.DefaultMaxOutput, "longest answer asked for, in tokens")
	f.IntVar(&o.plan.ModelLimit, "max-model-len", 131_072, "tokens of prompt and answer together that the model takes; longer rows are left out")
	f.BoolVar(&o.plan.WholeBlocks, "whole-blocks", false, "lengthen prompts to whole blocks of 512 tokens")
	f.IntVar(&o.plan.Warmup, "warmup", 0, "leave the first N requests out of the figures")
	f.StringVar(&o.hot, "hot-prefix", "", "give conversations a head in common, such as share=0.5,heads=1,tokens=3072")
	f.Uint64Var(&o.plan.Seed, "seed", 1, "seed of arrivals, engines and policies")
	f.StringSliceVar(&o.policies, "policy", []string{policy.CacheAware}, "placement policies, each on a fleet of its own: "+strings.Join(policy.Names, ", "))
	f.StringVar(&o.kvIndex, "kv-index", "", "index of the gateway (default: the gateway's own)")
	f.IntVar(&o.workers, "workers", 8, "mock workers")
	f.StringVar(&o.profile, "profile", "replay-default", "timing profile of the engines: a built-in name or a path")
	f.IntVar(&o.kvBlocks, "kv-blocks", 0, "KV blocks of each engine; 0 = the profile's")
	f.IntVar(&o.blockSize, "block-size", 16, "tokens of one KV block")
	f.StringVar(&o.loadInterval, "load-interval", "1s", "period of the gateway's load polls; with --sim also push")
	f.DurationVar(&o.loadMaxAge, "load-max-age", 3*time.Second, "age above which the gateway does not use a load record")
	f.StringVar(&o.loadReport, "load-report", sim.LoadVLLM, "with --sim: what workers tell of their load, vllm (no queued tokens, no rate) or full")
	f.DurationVar(&o.eventDelay, "event-delay", sim.DefaultEventDelay, "with --sim: from the end of a step to its events at the gateway")
	f.StringVar(&o.hash, "hash", sim.HashChain64, "with --sim: what engines hash blocks with, "+sim.HashChain64+" or an algorithm of a worker")
	o.engine.add(f)
	f.StringArrayVar(&o.gatewayArgs, "gateway-arg", nil, "one more argument of the gateway; repeatable")
	f.BoolVar(&o.live, "live", false, "real processes and real time (default)")
	f.BoolVar(&o.sim, "sim", false, "simulated time: the same engines and routing code in one process")
	f.StringVar(&o.url, "url", "", "base URL of a running gateway, in place of a fleet of our own")
	f.StringVar(&o.workersFile, "workers-file", "", "with --url: JSON `file` {\"workers\": [{\"id\", \"admin\", \"ranks\"}]} of the engines behind it (default: those of the last fleetdrill up, if it is its gateway)")
	f.StringVar(&o.slo, "slo", result.DefaultSLO().String(), "what a good request keeps: TTFT, and mean gap between tokens")
	f.BoolVar(&o.published, "published", false, "as the public replayer: raw arrivals, whole blocks, answers of at most 512 tokens, and its figures beside ours")
	f.StringVar(&o.out, "out", "", "folder to write (default: results/replays/UTC-TRACE)")
	f.BoolVar(&o.json, "json", false, "print the summary as JSON on standard output")
}

// check finds what is wrong with the flags before anything is read or started.
func (o *replayOptions) check(c *cobra.Command) (slo result.SLO, err error) {
	modes := 0
	for _, on := range []bool{o.live, o.sim, o.url != ""} {
		if on {
			modes++
		}
	}
	if modes > 1 {
		return slo, errors.New("--live, --sim and --url are three ways: give one")
	}
	if slo, err = result.ParseSLO(o.slo); err != nil {
		return slo, fmt.Errorf("--slo: %w", err)
	}
	if o.plan.Hot, err = plan.ParseHotPrefix(o.hot); err != nil {
		return slo, fmt.Errorf("--hot-prefix: %w", err)
	}
	if o.published {
		if err := o.asPublished(c.Flags().Changed); err != nil {
			return slo, err
		}
	}
	if o.plan.Speed <= 0 {
		return slo, fmt.Errorf("--speed %v: want a number above zero", o.plan.Speed)
	}
	if o.plan.MaxOutput < 1 || o.plan.ModelLimit < 2 {
		return slo, errors.New("--max-output and --max-model-len: want at least 1 and 2 tokens")
	}
	if o.loadEvery, o.loadPush, err = parseInterval(o.loadInterval); err != nil {
		return slo, err
	}
	if err := o.checkSim(c.Flags().Changed); err != nil {
		return slo, err
	}
	if o.url != "" {
		return slo, o.checkURL(c)
	}
	return slo, o.checkFleet(c)
}

// asPublished sets the plan to what the public replayer sends.
func (o *replayOptions) asPublished(changed func(string) bool) error {
	for _, name := range []string{"arrivals", "whole-blocks", "max-output"} {
		if changed(name) {
			return fmt.Errorf("--%s: --published says it already", name)
		}
	}
	o.plan.Arrivals, o.plan.WholeBlocks, o.plan.MaxOutput = plan.Raw, true, plan.DefaultMaxOutput
	return nil
}

// checkURL refuses the flags of a fleet that is not ours to start.
func (o *replayOptions) checkURL(c *cobra.Command) error {
	for _, name := range append([]string{"policy", "kv-index", "workers", "profile", "kv-blocks", "block-size", "load-interval", "load-max-age", "gateway-arg"}, engineFlags[:]...) {
		if c.Flags().Changed(name) {
			return fmt.Errorf("--%s: not with --url, whose fleet is already running", name)
		}
	}
	return nil
}

func (o *replayOptions) checkFleet(c *cobra.Command) error {
	if o.sim && c.Flags().Changed("gateway-arg") {
		return errors.New("--gateway-arg: not with --sim, which starts no gateway")
	}
	if o.workersFile != "" {
		return errors.New("--workers-file: only with --url")
	}
	if err := o.engine.check(); err != nil {
		return err
	}
	if err := checkIndex(o.kvIndex); err != nil {
		return err
	}
	for i, p := range o.policies {
		if !slices.Contains(policy.Names, p) {
			return fmt.Errorf("--policy %q: want some of %s", p, strings.Join(policy.Names, ", "))
		}
		if slices.Contains(o.policies[:i], p) {
			return fmt.Errorf("--policy %s: given twice", p)
		}
	}
	switch {
	case len(o.policies) == 0:
		return errors.New("--policy: want at least one")
	case o.workers < 1 || o.workers > 512:
		return fmt.Errorf("--workers %d: want 1 to 512", o.workers)
	case o.kvBlocks < 0 || o.blockSize < 1:
		return errors.New("--kv-blocks must not be negative, --block-size must be at least 1")
	}
	prof, err := engine.LoadProfile(o.profile)
	if err != nil {
		return fmt.Errorf("--profile: %w", err)
	}
	if o.kvBlocks == 0 {
		o.kvBlocks = prof.NumBlocks.Int()
	}
	// A prompt that no engine has room for would only count errors. Block 0 holds nothing (vLLM).
	o.plan.ModelLimit = min(o.plan.ModelLimit, (o.kvBlocks-1)*o.blockSize)
	return nil
}

// read plans the rows.
func (o *replayOptions) read(args []string, stdin io.Reader) (*plan.Plan, error) {
	rows, err := trace.ParseRows(o.rows)
	if err != nil {
		return nil, fmt.Errorf("--rows: %w", err)
	}
	r, err := openTrace(args, stdin, trace.Options{Rows: rows, SkipBad: o.skipBad})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return plan.Read(r, o.plan)
}

// run replays once per policy. What came of the policies before one that failed is kept.
func (o *replayOptions) run(p *plan.Plan, slo result.SLO, stdout, stderr io.Writer) error {
	ctx, stop := untilSignal()
	defer stop()
	info := result.Info{Trace: p.Trace, RowRange: o.rows, Rows: p.Rows, Skipped: p.Skipped, Speed: o.plan.Speed, Arrivals: o.plan.Arrivals,
		Seed: o.plan.Seed, SLO: slo, Workers: o.workers, Profile: o.profile, KVBlocks: o.kvBlocks, BlockSize: o.blockSize, KVIndex: o.kvIndex}
	var runs []result.Run
	var failed error
	for _, name := range o.names() {
		info.Policy = name
		lines := newProgress(stderr, name)
		out, err := o.replay(ctx, p, info, lines)
		lines.end()
		if out != nil {
			runs = append(runs, o.summarize(out))
		}
		if err != nil {
			failed = fmt.Errorf("replaying with %s: %w", name, err)
			break
		}
	}
	if err := o.publish(runs, stdout, stderr); err != nil {
		return errors.Join(failed, err)
	}
	return verdict(ctx, runs, failed)
}

func (o *replayOptions) summarize(out *live.Outcome) result.Run {
	s := result.Summarize(out.Info, out.Requests)
	if o.published {
		p := result.Publish(s.SLO, out.Requests)
		s.Published = &p
	}
	return result.Run{Summary: s, Requests: out.Requests}
}

// names are the runs: one per policy, or the one of a gateway that has its policy already.
func (o *replayOptions) names() []string {
	if o.url != "" {
		return []string{"url"}
	}
	return o.policies
}

// verdict is how the command ends: interrupted, failed, invalid or well.
func verdict(ctx context.Context, runs []result.Run, failed error) error {
	switch {
	case ctx.Err() != nil:
		return exitWith(exitSIGINT)
	case failed != nil:
		return failed
	case slices.ContainsFunc(runs, func(r result.Run) bool { return !r.Summary.Valid }):
		return exitWith(exitInvalid)
	}
	return nil
}

// replay runs one policy.
func (o *replayOptions) replay(ctx context.Context, p *plan.Plan, info result.Info, lines *progress) (*live.Outcome, error) {
	if o.sim {
		return o.simulate(ctx, p, info, lines)
	}
	state, err := lab.StateDir()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(state, "replay-")
	if err != nil {
		return nil, fmt.Errorf("making a folder for the fleet's logs: %w", err)
	}
	defer os.RemoveAll(dir)
	workers, err := o.engines()
	if err != nil {
		return nil, err
	}
	return live.Run(ctx, live.Options{Plan: p, Info: info, Dir: dir, URL: o.url, Workers: workers, Progress: lines.live,
		Fleet: lab.FleetSpec{Workers: o.workers, Profile: o.profile, KVBlocks: o.kvBlocks, BlockSize: o.blockSize, Seed: o.plan.Seed, Direct: true,
			Args: append([]string{"--max-model-len", strconv.Itoa(o.plan.ModelLimit)}, o.engine.args()...)},
		GatewayArgs: o.gatewayFlags(info.Policy)})
}

func (o *replayOptions) gatewayFlags(policy string) []string {
	args := []string{"--policy", policy, "--seed", strconv.FormatUint(o.plan.Seed, 10),
		"--load-interval", o.loadEvery.String(), "--load-max-age", o.loadMaxAge.String()}
	if o.kvIndex != "" {
		args = append(args, "--kv-index", o.kvIndex)
	}
	return append(args, o.gatewayArgs...)
}

// engines are those behind --url whose truth can be read.
func (o *replayOptions) engines() ([]contract.ReadyWorker, error) {
	switch {
	case o.url == "":
		return nil, nil
	case o.workersFile != "":
		t, err := verifyTarget(o.url, o.workersFile)
		return t.Workers, err
	}
	up, err := lab.LastUp()
	if err != nil || up.Gateway.HTTP != strings.TrimRight(o.url, "/") {
		return nil, nil // some other gateway: its engines are not ours to ask
	}
	return up.Workers, nil
}

// publish writes the folder and prints the result.
func (o *replayOptions) publish(runs []result.Run, stdout, stderr io.Writer) error {
	if len(runs) == 0 {
		return nil
	}
	dir := o.out
	if dir == "" {
		name := strings.TrimSuffix(filepath.Base(runs[0].Summary.Trace), filepath.Ext(runs[0].Summary.Trace))
		dir = filepath.Join("results", "replays", time.Now().UTC().Format("20060102T150405Z")+"-"+name)
	}
	if err := result.Save(dir, runs, report.Write); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "report: %s\n", filepath.Join(dir, "report.html"))
	if o.json {
		return result.WriteJSON(stdout, runs)
	}
	if _, err := io.WriteString(stdout, result.Text(runs)); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}
