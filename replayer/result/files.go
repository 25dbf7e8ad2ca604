package result

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Run is one replay: the summary and the requests it is of.
type Run struct {
	Summary  Summary
	Requests []Request
}

// WriteJSON writes the summaries as `replay --json` does: one by itself, several as runs[].
func WriteJSON(w io.Writer, runs []Run) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	var doc any
	if len(runs) == 1 {
		doc = runs[0].Summary
	} else {
		list := make([]Summary, len(runs))
		for i := range runs {
			list[i] = runs[i].Summary
		}
		doc = struct {
			Runs []Summary `json:"runs"`
		}{list}
	}
	if err := enc.Encode(doc); err != nil {
		return fmt.Errorf("writing the summary: %w", err)
	}
	return nil
}

// WriteRequests writes one JSON line per request.
func WriteRequests(w io.Writer, requests []Request) error {
	b := bufio.NewWriterSize(w, 64<<10)
	enc := json.NewEncoder(b)
	for i := range requests {
		if err := enc.Encode(&requests[i]); err != nil {
			return fmt.Errorf("writing a request: %w", err)
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing requests: %w", err)
	}
	return nil
}

// Save writes summary.json, report.html and each run's requests.jsonl into dir: there for a run by itself, in
// a folder named by policy for one of several.
func Save(dir string, runs []Run, page func(io.Writer, []Run) error) error {
	for _, r := range runs {
		sub := dir
		if len(runs) > 1 {
			sub = filepath.Join(dir, r.Summary.Policy)
		}
		if err := os.MkdirAll(sub, 0o755); err != nil {
			return fmt.Errorf("making the replay's folder: %w", err)
		}
		err := write(filepath.Join(sub, "requests.jsonl"), func(w io.Writer) error { return WriteRequests(w, r.Requests) })
		if err != nil {
			return err
		}
	}
	err := write(filepath.Join(dir, "summary.json"), func(w io.Writer) error { return WriteJSON(w, runs) })
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, "report.html"), func(w io.Writer) error { return page(w, runs) })
}

func write(path string, content func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing a replay: %w", err)
	}
	if err := errors.Join(content(f), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
