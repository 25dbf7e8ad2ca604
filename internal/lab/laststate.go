package lab

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"fleetdrill/internal/contract"
)

// UpState is what `fleetdrill up` leaves for later commands: where its gateway and engines are.
type UpState struct {
	Gateway contract.ReadyGateway  `json:"gateway"`
	Workers []contract.ReadyWorker `json:"workers"`
}

// StateDir is the folder for what outlives one command: cleanup journals and the last `up`.
// FLEETDRILL_STATE_DIR overrides it.
func StateDir() (string, error) {
	dir := os.Getenv("FLEETDRILL_STATE_DIR")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("finding a folder for fleetdrill's state: %w; set FLEETDRILL_STATE_DIR", err)
		}
		dir = filepath.Join(cache, "fleetdrill")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("making fleetdrill's state folder: %w", err)
	}
	return dir, nil
}

func upPath() (string, error) {
	dir, err := StateDir()
	return filepath.Join(dir, "up.json"), err
}

// SaveUp records a running fleet; the returned function removes the record if it is still ours.
func SaveUp(s UpState) (remove func(), err error) {
	path, err := upPath()
	if err != nil {
		return nil, err
	}
	raw, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the fleet's state: %w", err)
	}
	if err := writeAtomic(path, raw); err != nil {
		return nil, err
	}
	return func() {
		if now, err := os.ReadFile(path); err == nil && string(now) == string(raw) {
			_ = os.Remove(path)
		}
	}, nil
}

// LastUp reads the record of the last running `fleetdrill up`.
func LastUp() (UpState, error) {
	var s UpState
	path, err := upPath()
	if err != nil {
		return s, err
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return s, fmt.Errorf("finding the last `fleetdrill up`: %w; start one, or give --gateway and --workers-file", err)
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		return s, fmt.Errorf("reading %s: %w", path, err)
	}
	return s, nil
}

func writeAtomic(path string, raw []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(tmp.Name())
	if _, err := tmp.Write(raw); err != nil {
		tmp.Close()
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := tmp.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(tmp.Name(), path)
}
