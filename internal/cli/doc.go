// Package cli is the command line: one file per noun, each a thin command over the package that does the
// work. Results go to stdout, logs to stderr.
//
// Settings come from flags, then --config FILE, then the environment, the first one that says something
// wins. Exit codes are the product's: see exit.go.
package cli
