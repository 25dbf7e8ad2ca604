// Package scenarios embeds the drill files, so that the binary can run them from anywhere.
//
// It holds data and no logic: drills/scenario reads the files. matrix/ is the core of the release matrix, one
// file per row; engine/ has the rows whose faults are hooks inside an engine.
package scenarios

import (
	"embed"
	"io/fs"
)

//go:embed matrix engine
var files embed.FS

// FS is the tree of scenario files, with paths such as matrix/engine-killed.yaml.
func FS() fs.FS { return files }
