package cli

import (
	"errors"
	"fmt"
)

// Exit codes.
const (
	exitPass    = 0
	exitFail    = 1 // an expectation failed
	exitUnknown = 2
	exitInvalid = 3 // the drill proved nothing
	exitUsage   = 4 // usage or scenario error, nothing started
	exitHarness = 5 // harness error, or cleanup incomplete
	exitSIGINT  = 130
	exitSIGTERM = 143
)

// exitError carries an exit code to Main; without a message Main prints nothing more.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usage marks an error as the caller's: exit 4, nothing was started.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{exitUsage, err}
}

// exitWith ends a command with a code and nothing more to say; code 0 is no error.
func exitWith(code int) error {
	if code == exitPass {
		return nil
	}
	return &exitError{code: code}
}

// exitCode is the code of a command's error: what it carries, or a harness error.
func exitCode(err error) int {
	if err == nil {
		return exitPass
	}
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return exitHarness
}
