package gateway

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"fleetdrill/internal/contract"
)

// writeReady writes the ready file, atomically; an empty path writes none.
func writeReady(path string, proxy, admin net.Addr) error {
	if path == "" {
		return nil
	}
	start, err := startTime()
	if err != nil {
		return fmt.Errorf("writing ready file: %w", err)
	}
	ready := contract.ReadyFile{PID: os.Getpid(), StartTime: start, Kind: contract.KindGateway,
		Gateway: &contract.ReadyGateway{HTTP: "http://" + proxy.String(), Admin: "http://" + admin.String()}}
	body, err := json.MarshalIndent(ready, "", "  ")
	if err != nil {
		return fmt.Errorf("writing ready file: %w", err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".ready-*")
	if err != nil {
		return fmt.Errorf("writing ready file: %w", err)
	}
	_, err = tmp.Write(append(body, '\n'))
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
		return fmt.Errorf("writing ready file: %w", err)
	}
	return nil
}

// startTime is this process's start time in clock ticks since boot, field 22 of /proc/self/stat. The
// command name, field 2, may hold spaces, so fields are counted from behind its parenthesis.
func startTime() (uint64, error) {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/self/stat has %d fields", len(fields)+2)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}
