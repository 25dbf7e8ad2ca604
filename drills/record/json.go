package record

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// ReadJSON decodes one JSON file of a run folder. Its errors begin with path, and with the line where the
// decoder gave up.
func ReadJSON(path string, into any) error {
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: the file is missing: %w", path, fs.ErrNotExist)
	}
	if err != nil {
		return fmt.Errorf("reading a run folder: %w", err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s:%d: %w", path, lineOf(raw, err), err)
	}
	return nil
}

// lineOf turns the byte offset that the decoder reports into a line, which is what people look for.
func lineOf(raw []byte, err error) int {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	at := int64(0) // an error that knows no place is said of the first line
	switch {
	case errors.As(err, &syntax):
		at = syntax.Offset
	case errors.As(err, &kind):
		at = kind.Offset
	}
	return 1 + bytes.Count(raw[:min(max(at, 0), int64(len(raw)))], []byte{'\n'})
}
