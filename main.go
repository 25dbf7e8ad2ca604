// Command fleetdrill finds out, before users do, whether a KV-aware LLM gateway routes right when
// engines die, freeze, lie or lose events.
package main

import (
	"os"

	"fleetdrill/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
