package scenario

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed starter.yaml
var starter string

// Starter is a commented scenario called name to begin from. It parses and runs as it is.
func Starter(name string) ([]byte, error) {
	if !validID(name) {
		return nil, fmt.Errorf("%q cannot name a drill: a letter, then letters, digits and single -", name)
	}
	return []byte(strings.ReplaceAll(starter, "NAME", name)), nil
}
