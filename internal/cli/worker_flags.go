package cli

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// What flags of real engines are here: an operator's command line carries over, and what a mock engine has no
// use for is named rather than silently passed over. Sources are the engines' manuals.
var foreignFlags = map[string]string{
	"served-model-name":               "it is --model here, one name",
	"model-path":                      "it is --model here",
	"tokenizer":                       noUse,
	"tokenizer-path":                  noUse,
	"tokenizer-mode":                  noUse,
	"dtype":                           noUse,
	"kv-cache-dtype":                  noUse,
	"quantization":                    noUse,
	"load-format":                     noUse,
	"trust-remote-code":               noUse,
	"enforce-eager":                   noUse,
	"download-dir":                    noUse,
	"tensor-parallel-size":            oneDevice,
	"pipeline-parallel-size":          oneDevice,
	"decode-context-parallel-size":    "it multiplies the block size: give --block-size its product",
	"enable-expert-parallel":          oneDevice,
	"tp-size":                         oneDevice,
	"tp":                              oneDevice,
	"dp":                              "it is --dp-size or --data-parallel-size here",
	"gpu-memory-utilization":          "the cache is sized in blocks: --num-gpu-blocks-override",
	"mem-fraction-static":             "the cache is sized in blocks: --num-gpu-blocks-override",
	"max-total-tokens":                "the cache is sized in blocks: --num-gpu-blocks-override",
	"swap-space":                      "blocks are never swapped; --host-blocks is a host tier",
	"kv-offloading-size":              "a host tier is sized in blocks: --host-blocks",
	"kv-offloading-backend":           "a host tier is sized in blocks: --host-blocks",
	"kv-transfer-config":              "there are no connectors; --host-blocks is a host tier",
	"enable-chunked-prefill":          "prompts are always computed in chunks: leave it out",
	"max-num-partial-prefills":        "it has no effect in vLLM's V1 scheduler: leave it out",
	"enable-lora":                     "--lora-modules is enough",
	"disable-radix-cache":             "it is --enable-prefix-caching=false here",
	"schedule-policy":                 "requests are served as they arrive: leave it out",
	"enable-metrics":                  "/metrics is always there: leave it out",
	"disable-log-requests":            "the log is set by --log-level",
	"disable-log-stats":               "the log is set by --log-level",
	"uvicorn-log-level":               "the log is set by --log-level",
	"enable-auto-tool-choice":         noUse,
	"tool-call-parser":                noUse,
	"reasoning-parser":                noUse,
	"chat-template":                   noUse,
	"speculative-config":              "nothing is speculated: leave it out",
	"async-scheduling":                noUse,
	"compilation-config":              noUse,
	"attention-backend":               noUse,
	"mamba-cache-mode":                "there are no Mamba groups; --kv-cache-groups has what there is",
	"enable-hierarchical-cache":       "--host-blocks is a host tier",
	"hicache-ratio":                   "the host tier is sized in pages: --host-blocks",
	"hicache-size":                    "the host tier is sized in pages: --host-blocks",
	"enable-kv-cache-events":          "no engine has it: write it into --kv-events-config",
	"kv-events-endpoint":              "no engine has it: write it into --kv-events-config",
	"kv-cache-metrics":                noUse,
	"generation-config":               noUse,
	"limit-mm-per-prompt":             noUse,
	"skip-server-warmup":              noUse,
	"hicache-storage-backend":         "there is no tier behind the host's",
	"disable-overlap-schedule":        noUse,
	"enable-prompt-embeds":            noUse,
	"api-server-count":                "there is one API server: leave it out",
	"data-parallel-backend":           noUse,
	"disable-hybrid-kv-cache-manager": "without --kv-cache-groups there is one group",
}

const (
	noUse     = "it means nothing to a mock engine: leave it out"
	oneDevice = "a mock engine is one device, as fast as its --profile: leave it out"
)

var (
	longFlag  = regexp.MustCompile(`^unknown flag: --(\S+)`)
	shortFlag = regexp.MustCompile(`^unknown shorthand flag: '.' in -(\S+)`)
)

// carryOver explains an error of a worker's flags to who brought them from a real engine.
func carryOver(c *cobra.Command, err error) error {
	name := ""
	for _, unknown := range []*regexp.Regexp{longFlag, shortFlag} {
		if m := unknown.FindStringSubmatch(err.Error()); m != nil {
			name, _, _ = strings.Cut(strings.ReplaceAll(m[1], "_", "-"), "=")
		}
	}
	if hint := hintFor(c.Flags(), name); hint != "" {
		err = fmt.Errorf("%w: %s", err, hint)
	}
	return usage(fmt.Errorf("%w; see `%s --help`", err, c.CommandPath()))
}

// hintFor is what to do in place of a flag that there is not, empty without an idea.
func hintFor(fs *pflag.FlagSet, name string) string {
	if name == "" {
		return ""
	}
	if why, ok := foreignFlags[name]; ok {
		return why
	}
	if positive, ok := strings.CutPrefix(name, "no-"); ok {
		if why, known := foreignFlags[positive]; known {
			return why
		}
		if f := fs.Lookup(positive); f != nil && f.Value.Type() == "bool" {
			return fmt.Sprintf("it is --%s=false here", positive)
		}
	}
	if json, key, dotted := strings.Cut(name, "."); dotted && fs.Lookup(json) != nil {
		return fmt.Sprintf("write %q into the JSON of --%s", key, json)
	}
	if near := nearest(fs, name); near != "" {
		return fmt.Sprintf("did you mean --%s?", near)
	}
	return ""
}

// nearest is the flag whose name takes the fewest changes, at most a third of the name; empty without one.
func nearest(fs *pflag.FlagSet, name string) (near string) {
	best := len(name)/3 + 1
	fs.VisitAll(func(f *pflag.Flag) {
		if d := distance(name, f.Name); d < best {
			near, best = f.Name, d
		}
	})
	return near
}

// distance is how many bytes must be put in, taken out or replaced to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// underscores lets flags be spelt with underscores, as vLLM's parser does.
func underscores(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
}

// noModel refuses arguments; the one of `vllm serve` is the model.
func noModel(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(fmt.Errorf("%s takes no argument, got %q: a model's name is given by --model; see `%s --help`", c.CommandPath(), args[0], c.CommandPath()))
	}
	return nil
}
