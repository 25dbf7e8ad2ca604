package mockworker

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"fleetdrill/internal/contract"
	"fleetdrill/internal/supervise"
)

// writeReady writes the ready file in one step: a reader sees none, or all of it.
func writeReady(path string, workers []*worker) error {
	me, err := supervise.ReadProc(os.Getpid())
	if err != nil {
		return fmt.Errorf("writing ready file %s: %w", path, err)
	}
	f := contract.ReadyFile{PID: me.PID, StartTime: me.StartTime, Kind: contract.KindWorker}
	for _, w := range workers {
		f.Workers = append(f.Workers, w.ready)
	}
	b, err := json.Marshal(f)
	if err != nil {
		return fmt.Errorf("writing ready file %s: %w", path, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".ready-*")
	if err != nil {
		return fmt.Errorf("writing ready file %s: %w", path, err)
	}
	_, err = tmp.Write(append(b, '\n'))
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("writing ready file %s: %w", path, errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}
