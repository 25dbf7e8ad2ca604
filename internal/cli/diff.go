package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"fleetdrill/drills/compare"
)

func drillDiffCommand() *cobra.Command {
	var asJSON bool
	var page string
	c := &cobra.Command{
		Use:   "diff A B",
		Short: "Lay two stored runs over each other",
		Long: `Compares two run folders: for each expectation both values with their intervals and whether these
overlap, and every mark, in seconds from the first fault's effective instant. Writes a page with both runs
drawn over each other, by default diff.html in B's folder. Different drills, seeds or fleets are said, not
refused.

One run a side shows what happened twice, not what usually happens: intervals that are apart are a reason
to repeat both, no proof. Exit code 0 when the two could be compared, whatever came out; 4 for a folder
that is damaged or no run folder.`,
		Example: `  fleetdrill drill diff results/runs/engine-killed/20261129T120000Z-7 results/runs/engine-killed/latest
  fleetdrill drill diff A B --json | jq '.expectations[] | {id, relation}'`,
		Args: runFolders(2),
		RunE: func(c *cobra.Command, args []string) error {
			return runDiff(args[0], args[1], page, asJSON, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&page, "out", "", "page to write (default: diff.html in B's folder)")
	c.Flags().BoolVar(&asJSON, "json", false, "print the comparison as JSON")
	return withConfig(c)
}

func runDiff(a, b, page string, asJSON bool, stdout io.Writer) error {
	runA, err := openRun(a)
	if err != nil {
		return err
	}
	runB, err := openRun(b)
	if err != nil {
		return err
	}
	if page == "" {
		page = filepath.Join(runB.Drill.RunDir, "diff.html")
	}
	d := compare.Of(runA, runB)
	if err := writeDiffPage(d, page); err != nil {
		return err
	}
	if asJSON {
		return printJSON(stdout, struct {
			Page string `json:"page"`
			compare.Diff
		}{page, d})
	}
	_, err = fmt.Fprintf(stdout, "%s\npage  %s\n", d.Text(), page)
	return err
}

// writeDiffPage renders before it opens the file: a page that could not be drawn must not replace one.
func writeDiffPage(d compare.Diff, path string) error {
	html, err := d.HTML()
	if err != nil {
		return fmt.Errorf("rendering the comparison: %w", err)
	}
	if err := os.WriteFile(path, html, 0o644); err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	return nil
}
