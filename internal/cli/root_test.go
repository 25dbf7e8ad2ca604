package cli

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Every command refuses names and values that are none of its own as usage errors, before it starts anything.
func TestMistakesAreUsageErrors(t *testing.T) {
	t.Setenv("FLEETDRILL_STATE_DIR", t.TempDir())
	for _, c := range []struct{ args, want string }{
		{"frobnicate", `unknown command "frobnicate" for "fleetdrill"`},
		{"dril list", `(did you mean "drill"?)`},
		{"drill paln", `(did you mean "plan"?)`},
		{"--frobnicate", "unknown flag: --frobnicate"},
		{"drill frobnicate", `unknown command "frobnicate" for "fleetdrill drill"`},
		{"up more", "takes no argument"},
		{"up --workers 0", "--workers 0: want 1 to 512"},
		{"up --topology relay", "want direct"},
		{"up --policy wise", `--policy "wise": want one of round_robin`},
		{"up --kv-index wise", "--kv-index"},
		{"up --wire vllm-9", `unknown wire profile "vllm-9"`},
		{"up --profile wise", `unknown timing profile "wise"`},
		{"up --port 65536", "--port is 65536"},
		{"up --admin-port -1", "--admin-port is -1"},
		{"up --gateway-arg --wise", "--gateway-arg: unknown flag: --wise"},
	} {
		var stdout, stderr bytes.Buffer
		code := Main(strings.Fields(c.args), &stdout, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), c.want) || stdout.Len() > 0 {
			t.Errorf("%s: exit %d, %s%s; want %d and %q", c.args, code, stdout.String(), stderr.String(), exitUsage, c.want)
		}
	}
}

// A quoted word in a flag's description becomes the name of its value in the help, so it must be one word.
func TestValuesOfFlagsHaveNames(t *testing.T) {
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if name, _ := pflag.UnquoteUsage(f); strings.ContainsAny(name, " -=") {
				t.Errorf("%s: the help shows --%s %s", c.CommandPath(), f.Name, name)
			}
		})
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(newRoot(io.Discard, io.Discard))
}
