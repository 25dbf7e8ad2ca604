package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Names of the files of a record in a run folder.
const (
	HeadFile     = "record.json"
	MarksFile    = "marks.jsonl"
	SamplesFile  = "samples.jsonl"
	RequestsFile = "requests.jsonl"
	LinksFile    = "engines.jsonl"
	FaultsFile   = "faults.jsonl"
	GatesFile    = "gates.jsonl"
)

// maxLine bounds one line of a record: a sample of 64 workers with 8 ranks is below 100 KB, a request with
// 100,000 gaps below 2 MB.
const maxLine = 16 << 20

// Write stores the record in an existing folder: the head as record.json, every list as JSON lines.
func Write(dir string, r *Record) error {
	head, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding the head of a record: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, HeadFile), append(head, '\n'), 0o644); err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	return errors.Join(
		writeLines(dir, MarksFile, r.Marks),
		writeLines(dir, SamplesFile, r.Samples),
		writeLines(dir, RequestsFile, r.Requests),
		writeLines(dir, LinksFile, r.Links),
		writeLines(dir, FaultsFile, r.Faults),
		writeLines(dir, GatesFile, r.Gates),
	)
}

// Read loads the record of a run folder. A list without a file is empty; a record without its head is an
// error, since nothing can be judged without the period and the workers.
func Read(dir string) (*Record, error) {
	head, err := os.ReadFile(filepath.Join(dir, HeadFile))
	if err != nil {
		return nil, fmt.Errorf("reading a record: %w", err)
	}
	r := &Record{}
	if err := json.Unmarshal(head, r); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", filepath.Join(dir, HeadFile), err)
	}
	err = errors.Join(
		readLines(dir, MarksFile, &r.Marks),
		readLines(dir, SamplesFile, &r.Samples),
		readLines(dir, RequestsFile, &r.Requests),
		readLines(dir, LinksFile, &r.Links),
		readLines(dir, FaultsFile, &r.Faults),
		readLines(dir, GatesFile, &r.Gates),
	)
	if err != nil {
		return nil, err
	}
	return r, nil
}

// writeLines writes one JSON value a line. The error of Close counts: a full disk may show only there.
func writeLines[T any](dir, name string, rows []T) (err error) {
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return fmt.Errorf("writing a record: %w", err)
	}
	defer func() {
		if e := f.Close(); err == nil && e != nil {
			err = fmt.Errorf("writing %s: %w", name, e)
		}
	}()
	w := bufio.NewWriter(f)
	enc := json.NewEncoder(w)
	for i := range rows {
		if err := enc.Encode(&rows[i]); err != nil {
			return fmt.Errorf("writing line %d of %s: %w", i+1, name, err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("writing %s: %w", name, err)
	}
	return nil
}

// readLines names file and line of what it cannot decode; a run folder may have been edited by hand.
func readLines[T any](dir, name string, rows *[]T) error {
	f, err := os.Open(filepath.Join(dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading a record: %w", err)
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	for n := 1; sc.Scan(); n++ {
		var row T
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			return fmt.Errorf("decoding line %d of %s: %w", n, filepath.Join(dir, name), err)
		}
		*rows = append(*rows, row)
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("reading %s: %w", filepath.Join(dir, name), err)
	}
	return nil
}
