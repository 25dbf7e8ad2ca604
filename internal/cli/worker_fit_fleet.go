package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/fit"
	"fleetdrill/mockworker/late"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/published"
	"fleetdrill/replayer/trace"
)

// fleetOptions are the flags of `fleetdrill worker fit --published-fleet`.
type fleetOptions struct {
	on       bool
	refit    int
	rows     string
	rate     float64
	maxInput int
	late     time.Duration
}

// fleetFlags are their names but for the first; recordedFlags are those of a recorded run.
var (
	fleetFlags    = [...]string{"refit", "rows", "rate", "max-input", "late-removals-by"}
	recordedFlags = [...]string{"fit-on", "seed", "sensitivity", "num-gpu-blocks-override", "block-size", "max-num-seqs", "max-num-batched-tokens"}
)

// fleetProfiles are the two ways in which the published fleet is known.
var fleetProfiles = [...]string{"qwen3-8b-published", "qwen3-8b-published-curve"}

func (o *fleetOptions) add(c *cobra.Command) {
	f := c.Flags()
	f.BoolVar(&o.on, "published-fleet", false, "in place of RUN give a trace: what the profiles of the published fleet say of it beside what was measured")
	f.IntVar(&o.refit, "refit", 0, "with --published-fleet: fit coefficients to its full pool anew, in so many trials of about a second")
	f.StringVar(&o.rows, "rows", "0-1999", "with --published-fleet: rows of the trace")
	f.Float64Var(&o.rate, "rate", published.Rate, "with --published-fleet: requests a second")
	f.IntVar(&o.maxInput, "max-input", 0, "with --published-fleet: leave out rows with longer prompts, in tokens; 0 = none")
	f.DurationVar(&o.late, "late-removals-by", 10*time.Second, "with --published-fleet: how late removals are announced in the rows that have them late")
}

// check refuses the flags of the other way.
func (o *fleetOptions) check(changed func(string) bool) error {
	other, where := fleetFlags[:], "only with --published-fleet"
	if o.on {
		other, where = recordedFlags[:], "not with --published-fleet"
	}
	for _, name := range other {
		if changed(name) {
			return fmt.Errorf("--%s: %s", name, where)
		}
	}
	if o.refit < 0 || o.rate <= 0 || o.maxInput < 0 {
		return errors.New("--refit, --max-input and --rate: must not be negative, and the rate above zero")
	}
	if err := (late.Options{By: o.late}).Validate(); err != nil {
		return fmt.Errorf("--late-removals-by: %w", err)
	}
	return nil
}

// plan reads the trace twice: how fast it has to be asked is known only when its rows are counted.
func (o *fleetOptions) plan(path string) (p *plan.Plan, speed float64, err error) {
	rows, err := trace.ParseRows(o.rows)
	if err != nil {
		return nil, 0, fmt.Errorf("--rows: %w", err)
	}
	speed = 1
	for range 2 {
		r, err := trace.Open(path, trace.Options{Rows: rows})
		if err != nil {
			return nil, 0, err
		}
		p, err = plan.Read(r, published.Plan(o.maxInput, speed))
		if err = errors.Join(err, r.Close()); err != nil {
			return nil, 0, err
		}
		speed *= published.Speed(p, o.rate)
		if !(speed > 0) {
			return nil, 0, fmt.Errorf("trace %s: rows %s come at one instant, which no rate fits", path, o.rows)
		}
	}
	return p, speed, nil
}

// fleetReport is what --published-fleet --json prints.
type fleetReport struct {
	Trace      string                `json:"trace"`
	Rows       string                `json:"rows"`
	Requests   int                   `json:"requests"`
	Speed      float64               `json:"speed"`
	Rate       float64               `json:"rate"`
	Candidates []published.Candidate `json:"candidates"`
	// Refitted are the coefficients of --refit.
	Refitted *fit.Coefficients `json:"refitted,omitempty"`
}

func (o *fitOptions) runFleet(args []string, stdout, stderr io.Writer) error {
	if len(args) != 1 {
		return usage(fmt.Errorf("--published-fleet: want one trace, such as the public conversation_trace.jsonl, got %d", len(args)))
	}
	if o.out != "" && o.fleet.refit == 0 {
		return usage(errors.New("--out: with --published-fleet only beside --refit"))
	}
	profiles, err := o.fleetCandidates()
	if err != nil {
		return usage(err)
	}
	p, speed, err := o.fleet.plan(args[0])
	if err != nil {
		return usage(err)
	}
	ctx, stop := untilSignal()
	defer stop()
	report := fleetReport{Trace: p.Trace, Rows: o.fleet.rows, Requests: len(p.Requests), Speed: speed, Rate: o.fleet.rate}
	err = o.compare(ctx, p, profiles, &report, stderr)
	if ctx.Err() != nil {
		return exitWith(exitSIGINT)
	}
	if err != nil {
		return err
	}
	return o.printFleet(stdout, report)
}

// fleetCandidates are the profiles to score.
func (o *fitOptions) fleetCandidates() ([]engine.Profile, error) {
	names := fleetProfiles[:]
	if o.profile != "" {
		names = []string{o.profile}
	}
	var profiles []engine.Profile
	for _, name := range names {
		p, err := engine.LoadProfile(name)
		if err != nil {
			return nil, fmt.Errorf("--profile: %w", err)
		}
		profiles = append(profiles, p)
	}
	return profiles, nil
}

func (o *fitOptions) compare(ctx context.Context, p *plan.Plan, profiles []engine.Profile, report *fleetReport, stderr io.Writer) error {
	if o.fleet.refit > 0 {
		c, err := published.Fit(ctx, p, o.fleet.refit, func(call int, worst float64) {
			if call%10 == 0 {
				fmt.Fprintf(stderr, "trial %d: worst of what is fitted %.0f %%\n", call, worst*100)
			}
		})
		if err != nil {
			return err
		}
		report.Refitted = &c
		profiles = append([]engine.Profile{published.Profile(c)}, profiles...)
		if err := o.writeFleet(c, stderr); err != nil {
			return err
		}
	}
	for _, prof := range profiles {
		c, err := published.Compare(ctx, p, prof, o.fleet.late)
		if err != nil {
			return err
		}
		report.Candidates = append(report.Candidates, c)
	}
	return nil
}

// writeFleet writes the refitted profile to --out.
func (o *fitOptions) writeFleet(c fit.Coefficients, stderr io.Writer) error {
	if o.out == "" {
		return nil
	}
	if err := os.WriteFile(o.out, published.YAML(strings.TrimSuffix(filepath.Base(o.out), ".yaml"), c), 0o644); err != nil {
		return fmt.Errorf("writing the profile: %w", err)
	}
	fmt.Fprintf(stderr, "profile: %s\n", o.out)
	return nil
}

func (o *fitOptions) printFleet(stdout io.Writer, r fleetReport) error {
	if o.json {
		return json.NewEncoder(stdout).Encode(r)
	}
	_, err := fmt.Fprintf(stdout, "%s, rows %s: %d requests at %.1f a second (%.2fx), %d workers\n\n%s", r.Trace, r.Rows, r.Requests, r.Rate, r.Speed,
		published.Workers, published.Text(r.Candidates))
	if err != nil {
		return fmt.Errorf("writing the figures: %w", err)
	}
	return nil
}
