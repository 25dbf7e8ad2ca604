package gateway

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"

	"fleetdrill/gateway/index/kinds"
	"fleetdrill/gateway/policy"
	"fleetdrill/internal/contract"
)

// AddFlags binds the gateway's flags to c, whose present values are the defaults shown by --help.
func AddFlags(fs *pflag.FlagSet, c *Config) {
	fs.StringVar(&c.Host, "host", c.Host, "address both ports bind")
	fs.IntVar(&c.Port, "port", c.Port, "port of the OpenAI API (0 = chosen by the system)")
	fs.IntVar(&c.AdminPort, "admin-port", c.AdminPort, "port of /workers, /routing and pprof (0 = chosen by the system)")
	fs.StringVar(&c.AdminToken, "admin-token", c.AdminToken, "bearer token of the admin port; required off loopback")
	fs.Var(&workersValue{&c.Workers}, "worker", "a worker, repeatable: id=w1,url=http://127.0.0.1:8000,events=tcp://127.0.0.1:5557,replay=tcp://127.0.0.1:5558,ranks=1,block_size=16")
	fs.StringVar(&c.Policy, "policy", c.Policy, "placement policy: "+strings.Join(policy.Names, ", "))
	fs.StringVar(&c.KVIndex, "kv-index", c.KVIndex, "index of cached blocks: "+kinds.Help)
	fs.Int64Var(&c.IndexMaxBytes, "index-max-bytes", c.IndexMaxBytes, "bound on the chain index; above it the blocks stored longest ago are given up (0 = no bound)")
	fs.IntVar(&c.EventLanes, "event-lanes", c.EventLanes, "event streams that are applied to the index at once")
	fs.IntVar(&c.Retries, "retries", c.Retries, "further attempts of a request before its first byte, each on another worker")
	fs.Var(&secondsValue{&c.WorkerStall}, "worker-stall-secs", "seconds without any answer after which a worker counts as partitioned")
	fs.Var(&secondsValue{&c.WorkerWedge}, "worker-wedge-secs", "seconds without progress, with work outstanding, after which a worker counts as wedged (0 = never)")
	fs.DurationVar(&c.VetoedStreamTimeout, "vetoed-stream-timeout", c.VetoedStreamTimeout, "time that open streams of a wedged worker are given")
	fs.DurationVar(&c.StreamStallTimeout, "stream-stall-timeout", c.StreamStallTimeout, "longest silence within a stream (0 = no bound)")
	fs.DurationVar(&c.TTFTTimeout, "ttft-timeout", c.TTFTTimeout, "longest wait for the first byte (0 = no bound)")
	fs.DurationVar(&c.DrainTimeout, "drain-timeout", c.DrainTimeout, "time that admitted requests are given at shutdown")
	fs.DurationVar(&c.LoadInterval, "load-interval", c.LoadInterval, "period of the load polls")
	fs.DurationVar(&c.LoadMaxAge, "load-max-age", c.LoadMaxAge, "age above which a load record is not used")
	fs.Int64Var(&c.MaxBody, "max-body-bytes", c.MaxBody, "largest request body")
	fs.StringSliceVar(&c.Handicaps, "handicap", c.Handicaps, "switch a part of the gateway off, for negative controls: "+strings.Join(contract.Handicaps, ", "))
	fs.Uint64Var(&c.Seed, "seed", c.Seed, "seed of the policies' random draws")
	fs.StringVar(&c.ReadyFile, "ready-file", c.ReadyFile, "file to write when both ports serve")
}

// workersValue collects repeated --worker flags.
type workersValue struct{ specs *[]contract.WorkerSpec }

func (v *workersValue) String() string {
	if v.specs == nil {
		return ""
	}
	ids := make([]string, len(*v.specs))
	for i, s := range *v.specs {
		ids[i] = s.ID
	}
	return strings.Join(ids, ",")
}

func (v *workersValue) Set(s string) error {
	spec, err := ParseWorkerFlag(s)
	if err != nil {
		return err
	}
	for _, other := range *v.specs {
		if other.ID == spec.ID {
			return fmt.Errorf("worker id %q is given twice", spec.ID)
		}
	}
	*v.specs = append(*v.specs, spec)
	return nil
}

func (v *workersValue) Type() string { return "worker" }
