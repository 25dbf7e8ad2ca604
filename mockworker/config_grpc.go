package mockworker

import (
	"fmt"

	"github.com/spf13/pflag"
)

// GRPCConfig is the gRPC port of a worker.
type GRPCConfig struct {
	// GRPCPort is -1 for none and 0 for any.
	GRPCPort int
}

func addGRPCFlags(fs *pflag.FlagSet, c *GRPCConfig) {
	fs.IntVar(&c.GRPCPort, "grpc-port", -1, "port of vLLM's gRPC service; 0 picks a free one, which the ready file tells; with --count the first of consecutive ones; -1 = none")
}

// checkGRPC is part of planning for count workers.
func (c GRPCConfig) checkGRPC(count int) error {
	if c.GRPCPort < -1 || c.GRPCPort > 65_535 {
		return fmt.Errorf("--grpc-port is %d, must be from -1 to 65535", c.GRPCPort)
	}
	if c.GRPCPort > 0 && c.GRPCPort+count-1 > 65_535 {
		return fmt.Errorf("--grpc-port %d leaves no room for --count %d consecutive ports", c.GRPCPort, count)
	}
	return nil
}
