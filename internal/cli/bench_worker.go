package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"fleetdrill/replayer/workerbench"
)

const benchWorkerLong = `Measures mock workers from the outside: start, memory, tiny completions, 1,000 streams, KV events on the
wire, and whether slots and counters are right after clients hung up. Generator and worker share the
machine, as in the figures that stand beside them; on a busy machine every figure is worse.

With --peer-url another simulator that runs already is measured with the same requests, right after. Start
it with 50 ms between tokens for the part "streams" and with no delay for "tiny" and "events", each time
fresh: memory counts from its largest.`

const benchWorkerExample = `  fleetdrill bench worker                                   # about 4 minutes
  fleetdrill bench worker --quick --only tiny,streams
  fleetdrill bench worker --only tiny --peer-url http://127.0.0.1:8000 --peer-model mock --peer-pid 4711 --json`

func benchWorkerCommand() *cobra.Command {
	var o workerbench.Options
	var peerURL string
	var asJSON bool
	c := &cobra.Command{
		Use: "worker", Short: "What a mock worker costs, beside another simulator",
		Long: benchWorkerLong, Example: benchWorkerExample, Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.Peer.Addr, err = peerAddr(peerURL, o.Peer); err != nil {
				return usage(err)
			}
			for _, name := range o.Only {
				if !slices.Contains(workerbench.Parts(), name) {
					return usage(fmt.Errorf("--only %s: must be of %s", name, strings.Join(workerbench.Parts(), ", ")))
				}
			}
			if o.Exe, err = os.Executable(); err != nil {
				return fmt.Errorf("finding this program: %w", err)
			}
			o.Progress = func(what string) { fmt.Fprintln(c.ErrOrStderr(), "measuring", what) }
			ctx, stop := untilSignal()
			defer stop()
			res, err := workerbench.Run(ctx, o)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(c.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(res)
			}
			return res.Write(c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringSliceVar(&o.Only, "only", nil, "parts to measure: "+strings.Join(workerbench.Parts(), ", ")+" (default: all)")
	f.BoolVar(&o.Quick, "quick", false, "fewer and shorter measurements")
	f.StringArrayVar(&o.WorkerArgs, "worker-arg", nil, "one more argument of every worker; repeatable")
	f.StringVar(&peerURL, "peer-url", "", "base URL of another simulator that runs already, measured beside")
	f.StringVar(&o.Peer.Name, "peer-name", "peer", "what to call it")
	f.StringVar(&o.Peer.Model, "peer-model", "mock-8b", "model to ask it for")
	f.IntVar(&o.Peer.PID, "peer-pid", 0, "its process, for memory and CPU")
	f.StringVar(&o.Peer.Events, "peer-events", "", "its KV events, as tcp://host:port")
	f.BoolVar(&asJSON, "json", false, "print the result as JSON")
	return withConfig(c)
}

// peerAddr is host:port of the peer's URL, empty without one.
func peerAddr(raw string, p workerbench.Peer) (string, error) {
	if raw == "" {
		if p.PID != 0 || p.Events != "" {
			return "", errors.New("--peer-pid and --peer-events need --peer-url")
		}
		return "", nil
	}
	u, err := url.Parse(raw)
	if err != nil || u.Scheme != "http" || u.Port() == "" || strings.Trim(u.Path, "/") != "" {
		return "", fmt.Errorf("--peer-url %q: must be like http://127.0.0.1:8000", raw)
	}
	return u.Host, nil
}
