package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// settings is a flag set as a server's: one flag of each kind.
type settings struct {
	fs      *pflag.FlagSet
	Port    int
	Model   string
	Workers []string
}

func newSettings() *settings {
	s := &settings{fs: pflag.NewFlagSet("test", pflag.ContinueOnError)}
	s.fs.IntVar(&s.Port, "port", 8000, "")
	s.fs.StringVar(&s.Model, "model-name", "default", "")
	s.fs.StringArrayVar(&s.Workers, "worker", nil, "")
	return s
}

func (s *settings) fill(t *testing.T, file string, env map[string]string, args ...string) error {
	t.Helper()
	if err := s.fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	path := ""
	if file != "" {
		path = filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(path, []byte(file), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return fillFlags(s.fs, path, func(k string) (string, bool) { v, ok := env[k]; return v, ok })
}

// One effective configuration, whichever way it is said: flags win over the file, the file over the
// environment, and what nobody says keeps its default.
func TestPrecedence(t *testing.T) {
	env := map[string]string{"FLEETDRILL_PORT": "3", "FLEETDRILL_MODEL_NAME": "env"}
	for _, c := range []struct {
		name, file string
		env        map[string]string
		args       []string
		port       int
		model      string
	}{
		{"defaults", "", nil, nil, 8000, "default"},
		{"environment", "", env, nil, 3, "env"},
		{"file over environment", "port: 2\n", env, nil, 2, "env"},
		{"flag over both", "port: 2\nmodel-name: file\n", env, []string{"--port", "1"}, 1, "file"},
		{"empty file", "", env, []string{"--model-name", "flag"}, 3, "flag"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newSettings()
			if err := s.fill(t, c.file, c.env, c.args...); err != nil {
				t.Fatal(err)
			}
			if s.Port != c.port || s.Model != c.model {
				t.Errorf("port %d, model %q; want %d, %q", s.Port, s.Model, c.port, c.model)
			}
		})
	}
}

func TestListsComeFromFiles(t *testing.T) {
	s := newSettings()
	if err := s.fill(t, "worker: [id=w1, id=w2]\n", nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"id=w1", "id=w2"}, s.Workers); diff != "" {
		t.Errorf("workers (-want +got):\n%s", diff)
	}
}

func TestBadConfigNamesItsPlace(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"unknown key", "port: 1\nprot: 2\n", `:2:1: unknown key "prot"`},
		{"bad value", "port: many\n", `:1:7: port: `},
		{"twice", "port: 1\nport: 2\n", `:2:1: key "port" is there twice`},
		{"not a mapping", "- port\n", `:1:1: want a mapping`},
		{"nested", "port:\n  a: 1\n", `:2:3: port: want a plain value`},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := newSettings().fill(t, c.file, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want one with %q", err, c.want)
			}
		})
	}
	if err := newSettings().fill(t, "", map[string]string{"FLEETDRILL_PORT": "x"}); err == nil || !strings.Contains(err.Error(), "FLEETDRILL_PORT") {
		t.Errorf("a bad environment variable gave %v", err)
	}
}
