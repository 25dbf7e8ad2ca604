package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"fleetdrill/internal/lab"
	"fleetdrill/oracle"
)

func oracleCommand() *cobra.Command {
	return group("oracle", "What the best gateway could have known", oracleVerifyCommand())
}

// verifyTimeout bounds one comparison of a whole fleet.
const verifyTimeout = 2 * time.Minute

func oracleVerifyCommand() *cobra.Command {
	var gateway, workersFile string
	var asJSON bool
	c := &cobra.Command{
		Use:   "verify",
		Short: "Compare a gateway's index with its engines' truth, block for block",
		Long: `Reads the gateway's dump of every worker and, at the dump's own sequence number, the set of blocks
that the engine has announced. Equal means the same engine hashes at the same positions of the same
chains. Exit 0 when every worker is equal, 1 when one is not.`,
		Example: `  fleetdrill oracle verify                     # the last ` + "`fleetdrill up`" + `
  fleetdrill oracle verify --gateway http://127.0.0.1:8081 --workers-file workers.json --json`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			target, err := verifyTarget(gateway, workersFile)
			if err != nil {
				return usage(err)
			}
			ctx, stop := untilSignal()
			defer stop()
			return runVerify(ctx, target, asJSON, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&gateway, "gateway", "", "admin `URL` of the gateway (default: that of the last fleetdrill up)")
	f.StringVar(&workersFile, "workers-file", "", "JSON `file` {\"workers\": [{\"id\", \"admin\", \"ranks\"}]}, as a worker's ready file (default: that of the last fleetdrill up)")
	f.BoolVar(&asJSON, "json", false, "print the comparison as JSON")
	return withConfig(c)
}

// verifyTarget is the fleet to compare: named by flags, or the last `up`.
func verifyTarget(gateway, workersFile string) (lab.UpState, error) {
	var t lab.UpState
	if gateway == "" || workersFile == "" {
		last, err := lab.LastUp()
		if err != nil {
			return t, err
		}
		t = last
	}
	if gateway != "" {
		t.Gateway.Admin = gateway
	}
	if workersFile == "" {
		return t, nil
	}
	raw, err := os.ReadFile(workersFile)
	if err != nil {
		return t, fmt.Errorf("reading --workers-file: %w", err)
	}
	var named lab.UpState
	if err := json.Unmarshal(raw, &named); err != nil {
		return t, fmt.Errorf("reading --workers-file %s: %w", workersFile, err)
	}
	if len(named.Workers) == 0 {
		return t, fmt.Errorf("reading --workers-file %s: it names no workers", workersFile)
	}
	t.Workers = named.Workers
	return t, nil
}

func runVerify(ctx context.Context, t lab.UpState, asJSON bool, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, verifyTimeout)
	defer cancel()
	var workers []oracle.WorkerAdmin
	for _, w := range t.Workers {
		ranks := make([]int, len(w.Ranks))
		for i, r := range w.Ranks {
			ranks[i] = r.Rank
		}
		workers = append(workers, oracle.WorkerAdmin{ID: w.ID, AdminURL: w.Admin, Ranks: ranks})
	}
	report, err := oracle.Verify(ctx, t.Gateway.Admin, workers)
	if err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(out).Encode(report)
	} else {
		_, err = io.WriteString(out, report.Text())
	}
	if err != nil {
		return fmt.Errorf("writing the comparison: %w", err)
	}
	if !report.Equal() {
		return exitWith(exitFail)
	}
	return nil
}
