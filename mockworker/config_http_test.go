package mockworker

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/mockworker/api"
)

func TestHTTPConfig(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		wrong  string
	}{
		{func(c *Config) { c.APIKeys = []string{"a", ""} }, "--api-key is empty"},
		{func(c *Config) { c.ClientWriteTimeout = 0 }, "--client-write-timeout is 0s"},
		{func(c *Config) { c.BootDelay = -1 }, "--boot-delay"},
		{func(c *Config) { c.BootModels = "never" }, `--boot-models is "never"`},
		{func(c *Config) { c.LoRAModules = []string{"sql"} }, `--lora-modules: "sql" has no name or no path`},
		{func(c *Config) { c.LoRAModules = []string{"=/x"} }, "has no name"},
		{func(c *Config) { c.LoRAModules = []string{`{"name":1}`} }, `--lora-modules: reading {"name":1}: name is a number, must be a string`},
		{func(c *Config) { c.LoRAModules = []string{c.Model + "=/x"} }, "is the name of --model"},
		{func(c *Config) { c.LoRAModules = []string{"a=/x", "a=/y"} }, "a is given twice"},
	} {
		cfg := defaults()
		c.change(&cfg)
		if err := Validate(cfg); err == nil || !strings.Contains(err.Error(), c.wrong) {
			t.Errorf("error %v, want one about %q", err, c.wrong)
		}
	}
	cfg := defaults()
	cfg.LoRAModules = []string{"sql=/a=b", `{"name":"law","path":"/l","base_model_name":"x"}`}
	p, err := cfg.plan()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]api.Adapter{{Name: "sql", Path: "/a=b"}, {Name: "law", Path: "/l"}}, p.adapters); diff != "" {
		t.Errorf("adapters (-want +got):\n%s", diff)
	}
}
