package record

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// Write stores the record in an existing folder: the head as record.json, every list as JSON lines. Empty
// lists get a file too, so that a missing one is a damaged folder and never "nothing happened".
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

// Read loads and checks the record of a run folder. Every error names the file, and the line where there
// is one: a folder may have been cut short by a full disk or edited by hand.
func Read(dir string) (*Record, error) {
	r := &Record{}
	if err := ReadJSON(filepath.Join(dir, HeadFile), r); err != nil {
		return nil, err
	}
	err := errors.Join(
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
	if err := check(dir, r); err != nil {
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

// readLines reads one list of a record. Its file must exist: Write leaves one for an empty list too.
func readLines[T any](dir, name string, rows *[]T) error {
	path := filepath.Join(dir, name)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: the file is missing", path)
	}
	if err != nil {
		return fmt.Errorf("reading a record: %w", err)
	}
	defer f.Close()
	*rows, err = decodeLines[T](f, path)
	return err
}

// decodeLines reads one JSON value a line; path is for messages, in the file:line form that editors link.
func decodeLines[T any](r io.Reader, path string) ([]T, error) {
	var rows []T
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	n := 1
	for ; sc.Scan(); n++ {
		var row T
		if err := json.Unmarshal(sc.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", path, n, err)
		}
		rows = append(rows, row)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", path, n, err)
	}
	return rows, nil
}
