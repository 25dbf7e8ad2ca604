package publish

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Target is an endpoint of one rank, ready to be bound or dialled.
type Target struct {
	Endpoint string
	Bind     bool
}

// ResolveEvents is where rank's PUB socket goes. vLLM binds when the endpoint contains "*" or "::" or
// begins with ipc://, and connects otherwise, so tcp://0.0.0.0:5557 connects. "*" binds host. The rank is
// added to a port other than 0. With anyAddress, SGLang's rule, 0.0.0.0 binds as well.
func ResolveEvents(endpoint, host string, rank int, anyAddress bool) (Target, error) {
	bind := strings.Contains(endpoint, "*") || strings.Contains(endpoint, "::") || strings.HasPrefix(endpoint, "ipc://") ||
		anyAddress && strings.Contains(endpoint, "0.0.0.0")
	return resolve(endpoint, host, rank, bind)
}

// ResolveReplay is where rank's replay socket binds; replay sockets never connect.
func ResolveReplay(endpoint, host string, rank int) (Target, error) {
	return resolve(endpoint, host, rank, true)
}

func resolve(endpoint, host string, rank int, bind bool) (Target, error) {
	switch {
	case strings.HasPrefix(endpoint, "ipc://"):
		if rank > 0 {
			return Target{}, fmt.Errorf("endpoint %s has no port to add rank %d to: use tcp://", endpoint, rank)
		}
		return Target{Endpoint: endpoint, Bind: bind}, nil
	case strings.HasPrefix(endpoint, "inproc://"):
		return Target{}, fmt.Errorf("endpoint %s is inside one process, where no subscriber of ours can be: use tcp:// or ipc://", endpoint)
	}
	rest, ok := strings.CutPrefix(endpoint, "tcp://")
	if !ok {
		return Target{}, fmt.Errorf("endpoint %q must begin with tcp:// or ipc://", endpoint)
	}
	at, port, err := splitHostPort(rest)
	if err != nil {
		return Target{}, fmt.Errorf("endpoint %s: %w", endpoint, err)
	}
	if at == "*" {
		at = host
	}
	if port != 0 {
		port += rank
	}
	if port == 0 && !bind {
		return Target{}, fmt.Errorf("endpoint %s connects, so it needs a port", endpoint)
	}
	if port > 65_535 {
		return Target{}, fmt.Errorf("endpoint %s: port %d with rank %d added is beyond 65535", endpoint, port, rank)
	}
	return Target{Endpoint: "tcp://" + net.JoinHostPort(at, strconv.Itoa(port)), Bind: bind}, nil
}

// splitHostPort splits at the last colon, as the engine does; port * is 0.
func splitHostPort(s string) (host string, port int, err error) {
	i := strings.LastIndexByte(s, ':')
	if i <= 0 {
		return "", 0, errors.New("must be host:port")
	}
	host = strings.TrimSuffix(strings.TrimPrefix(s[:i], "["), "]")
	if s[i+1:] == "*" {
		return host, 0, nil
	}
	port, err = strconv.Atoi(s[i+1:])
	if err != nil || port < 0 {
		return "", 0, fmt.Errorf("port %q is not a number from 0 to 65535", s[i+1:])
	}
	return host, port, nil
}

// AnyPort says that the system picks the port.
func (t Target) AnyPort() bool { return strings.HasSuffix(t.Endpoint, ":0") }
