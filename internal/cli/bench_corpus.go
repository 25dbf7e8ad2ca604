package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"fleetdrill/replayer/bench/corpus"
	"fleetdrill/replayer/bench/drive"
	"fleetdrill/replayer/trace"
)

// corpusFlags say what is replayed, and where it is kept.
type corpusFlags struct {
	trace  string
	rows   string
	params corpus.Params
	cache  string
	read   string
	write  string
}

func (f *corpusFlags) add(c *cobra.Command) {
	f.params = corpus.DefaultParams()
	fs := c.Flags()
	fs.StringVar(&f.trace, "trace", "", "Mooncake trace that the corpus is made of (default: the one that is built in)")
	fs.StringVar(&f.rows, "rows", "", "only rows A-B of it, both inclusive and from 0")
	fs.IntVar(&f.params.Duplication, "duplication", f.params.Duplication, "copies of the trace that share nothing; the published corpus has 20")
	fs.IntVar(&f.params.LengthFactor, "length-factor", f.params.LengthFactor, "how many times longer prompts are than the trace's")
	fs.IntVar(&f.params.Workers, "workers", f.params.Workers, "engines; every row goes to one of them")
	fs.Uint64Var(&f.params.Seed, "seed", f.params.Seed, "decides which")
	fs.StringVar(&f.cache, "cache", "", "folder of made corpora (default: fleetdrill/corpora in the user's cache folder)")
	fs.StringVar(&f.read, "corpus", "", "replay this file in the public format SMGMCK01 in place of a trace")
	fs.StringVar(&f.write, "write-corpus", "", "write the corpus in the public format SMGMCK01, too")
}

// open finds the corpus in the cache or makes it, and maps it.
func (f *corpusFlags) open(say func(string)) (path string, c *corpus.Corpus, err error) {
	store, err := f.store(say)
	if err != nil {
		return "", nil, err
	}
	if f.read != "" {
		path, err = store.Import(f.read)
	} else {
		path, err = f.make(store)
	}
	if err != nil {
		return "", nil, err
	}
	if c, err = corpus.Open(path); err != nil {
		return "", nil, err
	}
	if f.write == "" {
		return path, c, nil
	}
	if err := writeCorpus(f.write, c); err != nil {
		_ = c.Close()
		return "", nil, err
	}
	return path, c, nil
}

func (f *corpusFlags) store(say func(string)) (corpus.Store, error) {
	s := corpus.Store{Dir: f.cache, Available: drive.AvailableMemory, Say: say}
	if s.Dir != "" {
		return s, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return s, fmt.Errorf("finding the user's cache folder: %w; name one with --cache", err)
	}
	s.Dir = filepath.Join(dir, "fleetdrill", "corpora")
	return s, nil
}

// make finds or makes the corpus of a trace.
func (f *corpusFlags) make(store corpus.Store) (string, error) {
	if err := f.params.Check(); err != nil {
		return "", usage(err)
	}
	rows, err := trace.ParseRows(f.rows)
	if err != nil {
		return "", usage(fmt.Errorf("--rows: %w", err))
	}
	var args []string
	if f.trace != "" {
		args = []string{f.trace}
	}
	r, err := openTrace(args, nil, trace.Options{Rows: rows})
	if err != nil {
		return "", usage(err)
	}
	defer r.Close()
	read, err := corpus.ReadRows(r)
	if err != nil {
		return "", usage(err)
	}
	path, err := store.Make(read, f.params)
	if errors.Is(err, corpus.ErrNoRoom) {
		return "", usage(fmt.Errorf("%w; a lower --duplication or fewer --rows take less", err))
	}
	return path, err
}

func writeCorpus(path string, c *corpus.Corpus) error {
	out, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("writing the corpus: %w", err)
	}
	return errors.Join(c.WriteSMG(out), out.Close())
}
