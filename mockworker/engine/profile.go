package engine

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

//go:embed profiles/*.yaml
var builtin embed.FS

// Where a figure of a profile comes from.
const (
	BasisFitted    = "fitted"    // fitted to a recorded run
	BasisPredicted = "predicted" // derived from other figures
	BasisUnproven  = "never validated"
	BasisChosen    = "chosen" // picked for a purpose, stands for no hardware
)

// Figure is one number of a profile and where it comes from.
type Figure struct {
	Value float64 `yaml:"value"`
	Basis string  `yaml:"basis"`
}

// Profile is how fast an engine is and what it is sized for. Times are in nanoseconds, see Timing.
type Profile struct {
	Name  string `yaml:"name"`
	About string `yaml:"about"`
	// StepNs to PrefillContextNs are Timing's A to E; a profile has either all of them or a Curve.
	StepNs           *Figure       `yaml:"step_ns,omitempty"`
	PrefillTokenNs   *Figure       `yaml:"prefill_token_ns,omitempty"`
	DecodeSeqNs      *Figure       `yaml:"decode_seq_ns,omitempty"`
	DecodeContextNs  *Figure       `yaml:"decode_context_token_ns,omitempty"`
	PrefillContextNs *Figure       `yaml:"prefill_token_context_ns,omitempty"`
	Curve            *ProfileCurve `yaml:"curve,omitempty"`
	// Timing's Overhead, FirstStep and Jitter, 0 where the profile has none.
	RequestOverheadNs *Figure `yaml:"request_overhead_ns,omitempty"`
	FirstStepNs       *Figure `yaml:"first_step_extra_ns,omitempty"`
	StepJitter        *Figure `yaml:"step_jitter,omitempty"`

	NumBlocks           Figure `yaml:"num_blocks"`
	BlockSize           Figure `yaml:"block_size"`
	MaxNumSeqs          Figure `yaml:"max_num_seqs"`
	MaxNumBatchedTokens Figure `yaml:"max_num_batched_tokens"`
}

// ProfileCurve is a Curve in a profile: prefill by points of tokens and nanoseconds, each further figure
// with its basis.
type ProfileCurve struct {
	PrefillPoints struct {
		Basis string       `yaml:"basis"`
		Table [][2]float64 `yaml:"table,flow"`
	} `yaml:"prefill_points"`
	BatchBaseNs    Figure `yaml:"batched_prefill_ns"`
	BatchTokenNs   Figure `yaml:"batched_prefill_token_ns"`
	DecodeNs       Figure `yaml:"decode_ns"`
	DecodeUseNs    Figure `yaml:"decode_use_ns"`
	DecodeSquareNs Figure `yaml:"decode_use_squared_ns"`
	CapacityTokens Figure `yaml:"capacity_tokens"`
}

// Timing is the profile's step time.
func (p Profile) Timing() Timing {
	t := Timing{
		A: p.StepNs.value(), B: p.PrefillTokenNs.value(), C: p.DecodeSeqNs.value(),
		D: p.DecodeContextNs.value(), E: p.PrefillContextNs.value(),
		Overhead: int64(p.RequestOverheadNs.value()), FirstStep: int64(p.FirstStepNs.value()), Jitter: p.StepJitter.value(),
	}
	if p.Curve != nil {
		t.Curve = p.Curve.curve()
	}
	return t
}

func (c *ProfileCurve) curve() *Curve {
	out := &Curve{
		BatchBase: c.BatchBaseNs.Value, BatchToken: c.BatchTokenNs.Value,
		D0: c.DecodeNs.Value, D1: c.DecodeUseNs.Value, D2: c.DecodeSquareNs.Value, Capacity: c.CapacityTokens.Value,
	}
	for _, p := range c.PrefillPoints.Table {
		out.Points = append(out.Points, Point{Tokens: int(p[0]), Ns: p[1]})
	}
	return out
}

// value is 0 for a figure that a profile does not have.
func (f *Figure) value() float64 {
	if f == nil {
		return 0
	}
	return f.Value
}

// Int is a figure that counts something.
func (f Figure) Int() int { return int(f.Value) }

// LoadProfile reads a built-in profile by name or a file by path; a name with a slash or ending in .yaml
// is a path. Unknown keys, missing figures and figures without a known basis are errors, with the line
// where there is one.
func LoadProfile(name string) (Profile, error) {
	data, err := readProfile(name)
	if err != nil {
		return Profile{}, err
	}
	p, err := parseProfile(data)
	if err != nil {
		return Profile{}, fmt.Errorf("reading timing profile %s: %w", name, err)
	}
	return p, nil
}

func readProfile(name string) ([]byte, error) {
	if strings.ContainsRune(name, '/') || strings.HasSuffix(name, ".yaml") {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("reading timing profile: %w", err)
		}
		return data, nil
	}
	data, err := builtin.ReadFile("profiles/" + name + ".yaml")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("unknown timing profile %q: built in are %s; anything else must be a path", name, strings.Join(builtinNames(), ", "))
	}
	return data, err
}

func builtinNames() []string {
	files, _ := fs.Glob(builtin, "profiles/*.yaml") // the pattern is well-formed, so it cannot fail
	for i, f := range files {
		files[i] = strings.TrimSuffix(path.Base(f), ".yaml")
	}
	slices.Sort(files) // a name before those it begins
	return files
}

func parseProfile(data []byte) (Profile, error) {
	var p Profile
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	dec.KnownFields(true)
	if err := dec.Decode(&p); err != nil {
		return p, err
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return p, errors.New("more than one document")
	}
	return p, p.validate()
}

// named is a figure and its key.
type named struct {
	key string
	*Figure
}

// coefficients are Timing's A to E as far as the profile has them.
func (p *Profile) coefficients() []named {
	return []named{
		{"step_ns", p.StepNs},
		{"prefill_token_ns", p.PrefillTokenNs},
		{"decode_seq_ns", p.DecodeSeqNs},
		{"decode_context_token_ns", p.DecodeContextNs},
		{"prefill_token_context_ns", p.PrefillContextNs},
	}
}

func (c *ProfileCurve) figures() []named {
	return []named{
		{"curve.prefill_points", &Figure{Basis: c.PrefillPoints.Basis}},
		{"curve.batched_prefill_ns", &c.BatchBaseNs},
		{"curve.batched_prefill_token_ns", &c.BatchTokenNs},
		{"curve.decode_ns", &c.DecodeNs},
		{"curve.decode_use_ns", &c.DecodeUseNs},
		{"curve.decode_use_squared_ns", &c.DecodeSquareNs},
		{"curve.capacity_tokens", &c.CapacityTokens},
	}
}

// validate checks every figure, in the order of the file.
func (p Profile) validate() error {
	if p.Name == "" {
		return errors.New("name is missing")
	}
	times, err := p.times()
	if err != nil {
		return err
	}
	for _, f := range times {
		if err := f.checkBasis(); err != nil {
			return err
		}
	}
	for _, f := range []named{
		{"num_blocks", &p.NumBlocks},
		{"block_size", &p.BlockSize},
		{"max_num_seqs", &p.MaxNumSeqs},
		{"max_num_batched_tokens", &p.MaxNumBatchedTokens},
	} {
		if err := f.checkBasis(); err != nil {
			return err
		}
		if f.Value < 1 || f.Value != float64(f.Int()) {
			return fmt.Errorf("%s is %v, must be a whole number of at least 1", f.key, f.Value)
		}
	}
	return p.Timing().validate()
}

// times are the figures of the step time that the profile has: the five or the curve, then what is optional.
func (p *Profile) times() ([]named, error) {
	figures := p.coefficients()
	if p.Curve != nil {
		for _, f := range figures {
			if f.Figure != nil {
				return nil, fmt.Errorf("%s beside a curve: a step's time is one or the other", f.key)
			}
		}
		figures = p.Curve.figures()
	}
	for _, f := range []named{{"request_overhead_ns", p.RequestOverheadNs}, {"first_step_extra_ns", p.FirstStepNs}, {"step_jitter", p.StepJitter}} {
		if f.Figure != nil {
			figures = append(figures, f)
		}
	}
	return figures, nil
}

func (f named) checkBasis() error {
	if f.Figure == nil {
		return fmt.Errorf("%s is missing", f.key)
	}
	if !slices.Contains([]string{BasisFitted, BasisPredicted, BasisUnproven, BasisChosen}, f.Basis) {
		return fmt.Errorf("%s: basis is %q, must be fitted, predicted, never validated or chosen", f.key, f.Basis)
	}
	return nil
}
