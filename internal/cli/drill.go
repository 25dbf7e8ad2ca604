package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"fleetdrill/drills"
	"fleetdrill/drills/scenario"
	"fleetdrill/drills/synth"
	"fleetdrill/internal/rng"
	"fleetdrill/mockworker/engine"
)

func drillCommand() *cobra.Command {
	return group("drill", "Run drills and judge them", drillRunCommand(), drillPlanCommand(), drillProveCommand(),
		drillRecheckCommand(), drillDiffCommand(), drillListCommand(), drillNewCommand(), drillSchemaCommand(), drillCleanupCommand())
}

// drillOptions are the flags that `drill run`, `drill prove` and `drill plan` share.
type drillOptions struct {
	seed        uint64
	seedGiven   bool
	gatewayArgs []string
	json        bool
}

func (o *drillOptions) add(c *cobra.Command, jsonHelp string) {
	f := c.Flags()
	f.Uint64Var(&o.seed, "seed", 0, "seed of the run, or with repeats what their seeds follow from (default: the scenario's own)")
	f.StringArrayVar(&o.gatewayArgs, "gateway-arg", nil, "one more argument of the gateway; repeatable")
	f.BoolVar(&o.json, "json", false, jsonHelp)
}

// seedOf is a single run's seed: as given, or the first that the scenario's repeats would use.
func (o drillOptions) seedOf(s *scenario.Scenario) uint64 {
	if o.seedGiven {
		return o.seed
	}
	return rng.RunSeed(s.Repeat.Seed, 0)
}

// check reads scenarios and plans each, so that every mistake is found before anything starts.
func (o *drillOptions) check(c *cobra.Command, args []string) ([]drillFile, error) {
	o.seedGiven = c.Flags().Changed("seed")
	files, err := loadScenarios(args)
	if err != nil {
		return nil, usage(err)
	}
	for _, f := range files {
		if _, err := o.plan(f.scenario); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func (o drillOptions) plan(s *scenario.Scenario) (*drills.Plan, error) {
	p, err := drills.NewPlan(s, o.seedOf(s), o.gatewayArgs, timings)
	if err != nil {
		return nil, usage(fmt.Errorf("%s: %w", s.Path, err))
	}
	return p, nil
}

func drillPlanCommand() *cobra.Command {
	var o drillOptions
	c := &cobra.Command{
		Use:     "plan [DIR or FILE...]",
		Short:   "Show what a drill would do, without starting anything",
		Example: `  fleetdrill drill plan scenarios/matrix/engine-killed.yaml --seed 42`,
		RunE: func(c *cobra.Command, args []string) error {
			files, err := o.check(c, args)
			if err != nil {
				return err
			}
			for _, f := range files {
				p, err := o.plan(f.scenario)
				if err != nil {
					return err
				}
				if err := printPlan(c.OutOrStdout(), p, o.json); err != nil {
					return err
				}
			}
			return nil
		},
	}
	o.add(c, "print the plans as JSON, one a line")
	return withConfig(c)
}

func printPlan(out io.Writer, p *drills.Plan, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(out).Encode(p)
	}
	_, err := io.WriteString(out, p.String())
	return err
}

func drillCleanupCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "cleanup",
		Short:   "Undo what a lab that was killed left behind",
		Example: `  fleetdrill drill cleanup`,
		Args:    noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return drills.Cleanup(func(line string) { fmt.Fprintln(c.OutOrStdout(), line) })
		},
	}
}

// timings looks up a profile's coefficients for utilisation.
func timings(profile string) (synth.Timing, error) {
	p, err := engine.LoadProfile(profile)
	if err != nil {
		return synth.Timing{}, err
	}
	t := p.Timing()
	return synth.Timing{B: t.B, C: t.C, D: t.D, E: t.E}, nil
}
