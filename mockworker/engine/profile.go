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
	// StepNs to PrefillContextNs are Timing's A to E.
	StepNs           Figure `yaml:"step_ns"`
	PrefillTokenNs   Figure `yaml:"prefill_token_ns"`
	DecodeSeqNs      Figure `yaml:"decode_seq_ns"`
	DecodeContextNs  Figure `yaml:"decode_context_token_ns"`
	PrefillContextNs Figure `yaml:"prefill_token_context_ns"`

	NumBlocks           Figure `yaml:"num_blocks"`
	BlockSize           Figure `yaml:"block_size"`
	MaxNumSeqs          Figure `yaml:"max_num_seqs"`
	MaxNumBatchedTokens Figure `yaml:"max_num_batched_tokens"`
}

// Timing is the profile's step time.
func (p Profile) Timing() Timing {
	return Timing{
		A: p.StepNs.Value, B: p.PrefillTokenNs.Value, C: p.DecodeSeqNs.Value,
		D: p.DecodeContextNs.Value, E: p.PrefillContextNs.Value,
	}
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

// validate checks every figure, in the order of the file.
func (p Profile) validate() error {
	if p.Name == "" {
		return errors.New("name is missing")
	}
	for _, f := range []struct {
		key string
		Figure
		count bool // a whole number of at least 1
	}{
		{"step_ns", p.StepNs, false},
		{"prefill_token_ns", p.PrefillTokenNs, false},
		{"decode_seq_ns", p.DecodeSeqNs, false},
		{"decode_context_token_ns", p.DecodeContextNs, false},
		{"prefill_token_context_ns", p.PrefillContextNs, false},
		{"num_blocks", p.NumBlocks, true},
		{"block_size", p.BlockSize, true},
		{"max_num_seqs", p.MaxNumSeqs, true},
		{"max_num_batched_tokens", p.MaxNumBatchedTokens, true},
	} {
		if !slices.Contains([]string{BasisFitted, BasisPredicted, BasisUnproven, BasisChosen}, f.Basis) {
			return fmt.Errorf("%s: basis is %q, must be fitted, predicted, never validated or chosen", f.key, f.Basis)
		}
		if f.count && (f.Value < 1 || f.Value != float64(f.Int())) {
			return fmt.Errorf("%s is %v, must be a whole number of at least 1", f.key, f.Value)
		}
	}
	return p.Timing().validate()
}
