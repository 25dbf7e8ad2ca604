package cli

import "github.com/spf13/cobra"

func benchCommand() *cobra.Command {
	return group("bench", "Benchmarks, as tables and JSON", benchWorkerCommand())
}
