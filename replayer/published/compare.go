package published

import (
	"context"
	"fmt"
	"math"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/late"
	"fleetdrill/replayer/plan"
	"fleetdrill/replayer/result"
	"fleetdrill/replayer/sim"
)

// Plan are the options of a plan that asks as the public replayer does: raw stamps, whole blocks, answers of
// at most 512 tokens, at Rate for so many requests in a window of speed 1.
func Plan(maxInput int, speed float64) plan.Options {
	return plan.Options{Speed: speed, Arrivals: plan.Raw, WholeBlocks: true, MaxOutput: plan.DefaultMaxOutput, ModelLimit: ModelLen, MaxInput: maxInput, Seed: 1}
}

// Speed is the one at which a plan of speed 1 asks at this rate, in requests a second.
func Speed(p *plan.Plan, rate float64) float64 {
	return rate * float64(p.WindowNs()) / 1e9 / float64(len(p.Requests))
}

// Row is a scenario as the mock engine has it.
type Row struct {
	Scenario
	// Late is by how much removals were announced late, in ms.
	LateMs float64 `json:"late_removals_ms"`
	Model  Figures `json:"model"`
}

// Candidate is what one profile says of the scenarios.
type Candidate struct {
	Profile string `json:"profile"`
	Rows    []Row  `json:"rows"`
	// Within15 are the figures of the scenarios that are within 15 % of hardware, of Of; those of small pools
	// with late removals.
	Within15 int `json:"within_15_percent"`
	Of       int `json:"of"`
}

// Compare simulates every scenario with a profile; those of the small pool once with truthful removals and
// once with late ones.
func Compare(ctx context.Context, p *plan.Plan, prof engine.Profile, by time.Duration) (Candidate, error) {
	c := Candidate{Profile: prof.Name}
	for _, s := range scenarios {
		if s.Pool != "full" {
			c.Rows = append(c.Rows, Row{Scenario: s})
		}
		r := Row{Scenario: s}
		if s.Pool != "full" {
			r.LateMs = float64(by) / 1e6
		}
		c.Rows = append(c.Rows, r)
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(2)
	for i := range c.Rows {
		r := &c.Rows[i]
		g.Go(func() (err error) {
			r.Model, err = simulate(ctx, p, prof, r.Scenario, time.Duration(r.LateMs*1e6))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return c, fmt.Errorf("simulating the published fleet with profile %s: %w", prof.Name, err)
	}
	c.count()
	return c, nil
}

func (c *Candidate) count() {
	for _, r := range c.Rows {
		if r.Pool != "full" && r.LateMs == 0 {
			continue
		}
		for i, v := range r.Model.list() {
			c.Of++
			if math.Abs(v/r.Hardware.list()[i]-1) <= 0.15 {
				c.Within15++
			}
		}
	}
}

// simulate runs one scenario, and counts as the public replayer does.
func simulate(ctx context.Context, p *plan.Plan, prof engine.Profile, s Scenario, by time.Duration) (Figures, error) {
	r, err := sim.Run(ctx, sim.Config{
		Plan: p, Workers: Workers, Policy: s.Policy, Retries: 2, Profile: prof, NumBlocks: s.Blocks, MaxNumSeqs: Seqs,
		MaxModelLen: ModelLen, ReserveFullISL: true, Late: late.Options{By: by}, Seed: 1,
	})
	if err != nil {
		return Figures{}, err
	}
	f := result.Publish(result.DefaultSLO(), r.Requests)
	return Figures{Goodput: f.Goodput, Within: f.WithinSLO, P50: f.TTFT.P50, P90: f.TTFT.P90, P99: f.TTFT.P99, Reuse: f.Reuse}, nil
}

// Text is a table per candidate: model over hardware.
func Text(candidates []Candidate) string {
	var b strings.Builder
	for _, c := range candidates {
		fmt.Fprintf(&b, "profile %s: model / hardware\n\n", c.Profile)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintf(w, "pool\tpolicy\tremovals\t%s\t\n", strings.Join(names[:], "\t"))
		for _, r := range c.Rows {
			r.text(w)
		}
		w.Flush() // into memory: cannot fail
		fmt.Fprintf(&b, "\nwithin 15 %% of hardware: %d of %d figures, small pools with late removals\n\n", c.Within15, c.Of)
	}
	return b.String()
}

func (r Row) text(w *tabwriter.Writer) {
	removals := "in time"
	if r.LateMs > 0 {
		removals = fmt.Sprintf("%g s late", r.LateMs/1e3)
	}
	m, h := r.Model, r.Hardware
	fmt.Fprintf(w, "%s\t%s\t%s\t%.2f / %.2f\t%.1f / %.1f %%\t%.0f / %.0f\t%.0f / %.0f\t%.0f / %.0f\t%.3f / %.3f\t\n", r.Pool, r.Policy, removals,
		m.Goodput, h.Goodput, m.Within*100, h.Within*100, m.P50, h.P50, m.P90, h.P90, m.P99, h.P99, m.Reuse, h.Reuse)
}
