package cli

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"fleetdrill/drills/scenario"
	"fleetdrill/scenarios"
)

func drillSchemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of a scenario file, for editors",
		Long: `Prints the JSON Schema (draft 2020-12) of scenario files. An editor with a YAML language server completes
keys and shows mistakes by it. The parser knows more: series, marks and their order (see drill plan).`,
		Example: `  fleetdrill drill schema > scenario.schema.json
  sed -i '1i # yaml-language-server: $schema=scenario.schema.json' my-drill.yaml`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			text, err := scenario.Schema()
			if err != nil {
				return err
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
}

func drillNewCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "new NAME",
		Short:   "Print a commented scenario to begin from",
		Example: `  fleetdrill drill new my-drill > my-drill.yaml && fleetdrill drill plan my-drill.yaml`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage(fmt.Errorf("%s takes one name, got %d; see `%s --help`", c.CommandPath(), len(args), c.CommandPath()))
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			text, err := scenario.Starter(args[0])
			if err != nil {
				return usage(err)
			}
			_, err = c.OutOrStdout().Write(text)
			return err
		},
	}
}

// listedDrill is an element of `drill list --json`.
type listedDrill struct {
	Name     string   `json:"name"`
	File     string   `json:"file"`
	Summary  string   `json:"summary"`
	Tags     []string `json:"tags"`
	Topology string   `json:"topology"`
	Control  []string `json:"control"`
}

func drillListCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use:   "list",
		Short: "List the drills built into this binary",
		Example: `  fleetdrill drill list
  fleetdrill drill list --json | jq -r '.[] | select(.tags | index("core")) | .name'`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			drills, err := listDrills()
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(c.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(drills)
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 0, 2, ' ', 0)
			fmt.Fprintln(w, "FILE\tTAGS\tCONTROL\tSUMMARY")
			for _, d := range drills {
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", d.File, strings.Join(d.Tags, ","), strings.Join(d.Control, ","), d.Summary)
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print an array of objects")
	return c
}

// listDrills reads every embedded scenario.
func listDrills() ([]listedDrill, error) {
	out := []listedDrill{}
	err := fs.WalkDir(scenarios.FS(), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || path.Ext(name) != ".yaml" {
			return err
		}
		f, err := readDrill(scenarios.FS(), name, "scenarios/"+name)
		if err != nil {
			return err
		}
		s := f.scenario
		out = append(out, listedDrill{Name: s.Name, File: s.Path, Summary: s.Summary, Tags: append([]string{}, s.Tags...),
			Topology: s.Topology, Control: append([]string{}, s.Control...)})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("reading the built-in scenarios: %w", err)
	}
	return out, nil
}
