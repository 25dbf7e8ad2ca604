package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"gopkg.in/yaml.v3"
)

// envPrefix begins every environment variable that sets a flag: --max-num-seqs is
// FLEETDRILL_MAX_NUM_SEQS.
const envPrefix = "FLEETDRILL_"

// maxConfig bounds a configuration file, in bytes.
const maxConfig = 1 << 20

// withConfig adds --config to a command and fills flags that were not given from it, and then from the
// environment.
func withConfig(c *cobra.Command) *cobra.Command {
	var path string
	c.Flags().StringVar(&path, "config", "", "YAML file of flag names and values; flags win over it, it wins over "+envPrefix+"* variables")
	next := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := fillFlags(c.Flags(), path, os.LookupEnv); err != nil {
			return usage(err)
		}
		return next(c, args)
	}
	return c
}

// fillFlags sets every flag that the command line left alone from the file, then from the environment.
func fillFlags(fs *pflag.FlagSet, path string, lookup func(string) (string, bool)) error {
	given := map[string]bool{}
	fs.Visit(func(f *pflag.Flag) { given[f.Name] = true })
	if path != "" {
		if err := fillFromFile(fs, path, given); err != nil {
			return err
		}
	}
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		name := envPrefix + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value, ok := lookup(name)
		if !ok || given[f.Name] || f.Name == "help" || f.Name == "config" {
			return
		}
		if err := fs.Set(f.Name, value); err != nil {
			errs = append(errs, fmt.Errorf("reading %s: %w", name, err))
		}
	})
	return errors.Join(errs...)
}

// fillFromFile reads a strict YAML mapping of flag names: every problem is reported with its place.
func fillFromFile(fs *pflag.FlagSet, path string, given map[string]bool) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading --config: %w", err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxConfig+1))
	if err != nil {
		return fmt.Errorf("reading --config %s: %w", path, err)
	}
	if len(raw) > maxConfig {
		return fmt.Errorf("reading --config %s: larger than %d bytes", path, maxConfig)
	}
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(raw)).Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return fmt.Errorf("reading --config %s: %w", path, err)
	}
	m := doc.Content[0]
	if m.Kind != yaml.MappingNode {
		return fmt.Errorf("%s:%d:%d: want a mapping of flag names to values", path, m.Line, m.Column)
	}
	var errs []error
	seen := map[string]bool{}
	for i := 0; i+1 < len(m.Content); i += 2 {
		errs = append(errs, fillOne(fs, path, m.Content[i], m.Content[i+1], given, seen))
	}
	return errors.Join(errs...)
}

func fillOne(fs *pflag.FlagSet, path string, key, value *yaml.Node, given, seen map[string]bool) error {
	at := func(n *yaml.Node, format string, a ...any) error {
		return fmt.Errorf("%s:%d:%d: %s", path, n.Line, n.Column, fmt.Sprintf(format, a...))
	}
	name := key.Value
	switch f := fs.Lookup(name); {
	case f == nil || name == "config" || name == "help":
		return at(key, "unknown key %q", name)
	case seen[name]:
		return at(key, "key %q is there twice", name)
	}
	seen[name] = true
	fromCommandLine := given[name]
	given[name] = true
	if fromCommandLine {
		return nil
	}
	items := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode {
		items = value.Content
	}
	for _, item := range items {
		if item.Kind != yaml.ScalarNode {
			return at(item, "%s: want a plain value or a list of them", name)
		}
		if err := fs.Set(name, item.Value); err != nil {
			return at(item, "%s: %v", name, err)
		}
	}
	return nil
}
