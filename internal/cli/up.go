package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fleetdrill/gateway/index/kinds"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
	"fleetdrill/internal/lab"
	"fleetdrill/mockworker"
)

// upOptions are the flags of `fleetdrill up`.
type upOptions struct {
	workers                   int
	topology, policy, kvIndex string
	wire, profile             string
	port, adminPort           int
	seed                      uint64
	gatewayArgs               []string
	json                      bool
}

// bootTimeout bounds the start of a fleet; a worker starts in well under a second on an idle core.
const bootTimeout = 60 * time.Second

func upCommand() *cobra.Command {
	var o upOptions
	c := &cobra.Command{
		Use:   "up",
		Short: "A fleet of mock engines and a gateway on loopback, until ctrl-C",
		Example: `  fleetdrill up --workers 4
  fleetdrill up --workers 8 --policy round_robin --profile drill`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return usage(err)
			}
			ctx, stop := untilSignal()
			defer stop()
			return runUp(ctx, o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.IntVar(&o.workers, "workers", 8, "mock workers, one process each")
	f.StringVar(&o.topology, "topology", "direct", "direct: the gateway subscribes to each engine itself")
	f.StringVar(&o.policy, "policy", "", "placement policy of the gateway (default: the gateway's own)")
	f.StringVar(&o.kvIndex, "kv-index", "", "index of the gateway (default: the gateway's own)")
	f.StringVar(&o.wire, "wire", "", "wire profile of the engines (default: the worker's own)")
	f.StringVar(&o.profile, "profile", "fast", "timing profile of the engines")
	f.IntVar(&o.port, "port", 0, "proxy port of the gateway; 0 picks a free one")
	f.IntVar(&o.adminPort, "admin-port", 0, "admin port of the gateway; 0 picks a free one")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the engines' tokens")
	f.StringArrayVar(&o.gatewayArgs, "gateway-arg", nil, "one more argument of the gateway; repeatable")
	f.BoolVar(&o.json, "json", false, "print the URLs as one JSON document")
	return withConfig(c)
}

func (o upOptions) check() error {
	if o.workers < 1 || o.workers > 512 {
		return fmt.Errorf("--workers %d: want 1 to 512", o.workers)
	}
	if o.topology != "direct" {
		return fmt.Errorf("--topology %q: want direct", o.topology)
	}
	for name, port := range map[string]int{"port": o.port, "admin-port": o.adminPort} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("--%s is %d, must be from 0 to 65535", name, port)
		}
	}
	if err := checkIndex(o.kvIndex); err != nil {
		return err
	}
	if o.policy != "" && !slices.Contains(policy.Names, o.policy) {
		return fmt.Errorf("--policy %q: want one of %s", o.policy, strings.Join(policy.Names, ", "))
	}
	if err := gatewayCommand().ParseFlags(o.args()); err != nil {
		return fmt.Errorf("--gateway-arg: %w", err)
	}
	return o.checkEngines()
}

// checkEngines asks a worker's own check about the engines before any is started.
func (o upOptions) checkEngines() error {
	var cfg mockworker.Config
	mockworker.AddFlags(pflag.NewFlagSet("worker", pflag.ContinueOnError), &cfg)
	cfg.Profile = o.profile
	if o.wire != "" {
		cfg.Wire = o.wire
	}
	return mockworker.Validate(cfg)
}

// checkIndex refuses an index name before anything starts; empty is the gateway's default.
func checkIndex(name string) error {
	if name == "" {
		return nil
	}
	if _, err := kinds.New(name); err != nil {
		return fmt.Errorf("--kv-index: %w", err)
	}
	return nil
}

// args are the gateway's flags that `up` passes on.
func (o upOptions) args() []string {
	args := []string{"--port", fmt.Sprint(o.port), "--admin-port", fmt.Sprint(o.adminPort)}
	if o.policy != "" {
		args = append(args, "--policy", o.policy)
	}
	if o.kvIndex != "" {
		args = append(args, "--kv-index", o.kvIndex)
	}
	return append(args, o.gatewayArgs...)
}

// runUp serves until ctx ends or a child does.
func runUp(ctx context.Context, o upOptions, out io.Writer) (err error) {
	state, err := lab.StateDir()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(state, "up-")
	if err != nil {
		return fmt.Errorf("making a folder for the fleet's logs: %w", err)
	}
	defer os.RemoveAll(dir)
	l, err := lab.New(lab.Options{Dir: dir})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	boot, cancel := context.WithTimeoutCause(ctx, bootTimeout, fmt.Errorf("the fleet did not start within %v", bootTimeout))
	defer cancel()
	fleet, err := l.StartFleet(boot, lab.FleetSpec{Workers: o.workers, Profile: o.profile, Wire: o.wire, Seed: o.seed, Direct: true})
	if err != nil {
		return interrupted(ctx, err)
	}
	gw, err := l.StartGateway(boot, fleet, o.args()...)
	if err != nil {
		return interrupted(ctx, err)
	}
	if err := gw.AwaitRoutable(boot, o.workers); err != nil {
		return interrupted(ctx, err)
	}
	up := lab.UpState{Gateway: contract.ReadyGateway{HTTP: gw.URL, Admin: gw.Admin.Base}}
	for _, w := range fleet.Workers {
		up.Workers = append(up.Workers, w.Ready)
	}
	forget, err := lab.SaveUp(up)
	if err != nil {
		return err
	}
	defer forget()
	if err := printUp(out, up, dir, o.json); err != nil {
		return err
	}
	return watchChildren(ctx, fleet, gw, out)
}

// interrupted turns a boot error into a clean end when the user asked for it.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// watchChildren waits for ctx. An engine that ends is reported and the rest serves on, since killing one
// is what a fleet is for; a gateway that ends, ends everything.
func watchChildren(ctx context.Context, fleet *lab.Fleet, gw *lab.Gateway, out io.Writer) error {
	gone := make(chan string, len(fleet.Workers))
	for _, w := range fleet.Workers {
		go func() {
			<-w.Child.Done()
			gone <- w.ID
		}()
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-gw.Child.Done():
			return errors.New("the gateway ended on its own")
		case id := <-gone:
			fmt.Fprintf(out, "%s ended\n", id)
		}
	}
}

func printUp(out io.Writer, up lab.UpState, dir string, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(up)
	}
	fmt.Fprintf(out, "gateway  %s   admin %s\n", up.Gateway.HTTP, up.Gateway.Admin)
	for _, w := range up.Workers {
		fmt.Fprintf(out, "%-7s  %s   admin %s   events %s\n", w.ID, w.HTTP, w.Admin, w.Ranks[0].Events)
	}
	_, err := fmt.Fprintf(out, `logs     %s/logs

Try:
  curl -s %[2]s/v1/completions -H 'content-type: application/json' -d '{"model": "mock-8b", "prompt": "hello", "max_tokens": 8}'
  curl -sN %[2]s/v1/chat/completions -H 'content-type: application/json' -d '{"model": "mock-8b", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 8, "stream": true}'
  curl -s %[3]s/routing/state

ctrl-C ends everything.
`, dir, up.Gateway.HTTP, up.Gateway.Admin)
	return err
}
