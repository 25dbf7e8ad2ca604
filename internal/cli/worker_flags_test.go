package cli

import (
	"bytes"
	"strings"
	"testing"
)

// The flags of a real engine's command line are taken, or refused with what to do instead.
func TestEngineFlags(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--tensor-parallel-size 2", "unknown flag: --tensor-parallel-size: a mock engine is one device, as fast as its --profile: leave it out"},
		{"--gpu_memory_utilization=0.9", "unknown flag: --gpu_memory_utilization: the cache is sized in blocks: --num-gpu-blocks-override"},
		{"-tp 2", "a mock engine is one device"},
		{"--no-enable-prefix-caching", "it is --enable-prefix-caching=false here"},
		{"--no-enable-chunked-prefill", "prompts are always computed in chunks"},
		{"--kv-events-config.topic=kv", `write "topic" into the JSON of --kv-events-config`},
		{"--max-num-seq 4", "did you mean --max-num-seqs?"},
		{"--enable-kv-cache-events", "write it into --kv-events-config"},
		{"--frobnicate", "unknown flag: --frobnicate; see `fleetdrill worker --help`"},
		{"meta-llama/Llama-3.1-8B", "a model's name is given by --model"},
		{"--max_num_seqs=-1", "--max-num-seqs is -1"},
		{"fit --tensor-parallel-size 2", "unknown flag: --tensor-parallel-size"},
	} {
		var stderr bytes.Buffer
		code := Main(append([]string{"worker"}, strings.Fields(c.args)...), &bytes.Buffer{}, &stderr)
		if code != exitUsage || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: exit %d, %s", c.args, code, stderr.String())
		}
	}
}

// No flag that there is stands among those that there are not.
func TestEngineFlagsAreOthers(t *testing.T) {
	fs := workerCommand().Flags()
	for name := range foreignFlags {
		if fs.Lookup(name) != nil {
			t.Errorf("--%s is a flag of the worker, too", name)
		}
	}
}
