package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"fleetdrill/gateway/fleet"
)

// failure is how an attempt failed.
type failure uint8

const (
	none       failure = iota
	clientGone         // the client hung up or does not take its answer
	vetoed             // the fleet ended it
	refused            // no connection was made: the engine never saw the request
	broken             // reset, or ended before the answer was complete
	timedOut           // silent for too long
	status             // an error status of the engine's
)

var (
	errTTFT   = errors.New("no first byte in time")
	errStall  = errors.New("the stream was silent for too long")
	errClient = errors.New("the client does not take its answer")
	errShort  = errors.New("the answer ended before it was complete")
)

// classify sorts an attempt's error. client is the client's context, cause the cause with which the
// attempt's own context ended, if it did: a cancelled exchange returns all kinds of errors, so the cause
// comes first.
func classify(err error, cause error, client context.Context) failure {
	var veto *fleet.VetoedError
	var op *net.OpError
	switch {
	case errors.As(cause, &veto):
		return vetoed
	case errors.Is(cause, errTTFT) || errors.Is(cause, errStall):
		return timedOut
	case errors.Is(cause, errClient) || client.Err() != nil:
		return clientGone
	case errors.As(err, &op) && op.Op == "dial" && !op.Timeout():
		return refused
	case errors.As(err, &op) && op.Timeout():
		return timedOut
	default:
		return broken
	}
}

// failedStatus says whether an engine's status is its own failure: then another worker may do better.
// Other statuses, 429 included, are answers.
func failedStatus(code int) bool {
	switch code {
	case http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// outcome is what the worker is charged with.
func (f failure) outcome(err error) fleet.Outcome {
	switch f {
	case none:
		return fleet.Done
	case clientGone, vetoed:
		return fleet.Declined
	case refused:
		return fleet.Refused
	case broken:
		if fleet.IsRefusal(err) {
			return fleet.Refused
		}
	}
	return fleet.Failed
}

// mayRetry says whether a failed attempt is tried again: never once a byte has reached the client, never
// more often than allowed. Only failures that could be the request's own fault draw on the budget: a
// refused or vetoed attempt never reached a working engine.
func mayRetry(f failure, begun bool, attempts, retries int, draw func() bool) bool {
	if begun || f == clientGone || f == none || attempts > retries {
		return false
	}
	return f == vetoed || f == refused || draw()
}

// MayMove says whether a request that the fleet ended goes to another worker: begun says that bytes of an
// answer have reached the client, attempts counts the one that was ended, retries are those allowed.
func MayMove(begun bool, attempts, retries int) bool {
	return mayRetry(vetoed, begun, attempts, retries, nil)
}

// explain is the gateway's own answer to a request whose last attempt failed.
func (f failure) explain(worker string, err error) *apiError {
	switch f {
	case vetoed:
		return &apiError{http.StatusServiceUnavailable, "ServiceUnavailableError", err.Error()}
	case timedOut:
		return &apiError{http.StatusGatewayTimeout, "GatewayTimeoutError", fmt.Sprintf("worker %s: %v", worker, err)}
	default:
		return &apiError{http.StatusBadGateway, "BadGatewayError", fmt.Sprintf("worker %s: %v", worker, err)}
	}
}
