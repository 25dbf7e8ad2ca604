package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"fleetdrill/internal/contract"
)

// maxAnswer bounds any JSON answer the lab reads, in bytes. A routing state of 1,024 workers is under
// 1 MB.
const maxAnswer = 64 << 20

// NewHTTPClient is the client for admin APIs: keep-alive to many hosts, no compression, no redirects
// worth following, and a dial that fails quickly, since everything is on this machine.
func NewHTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:         (&net.Dialer{Timeout: time.Second}).DialContext,
		MaxIdleConns:        0,
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     4 * time.Second, // engines close after 5
		DisableCompression:  true,
	}}
}

// API is a JSON client of one admin base URL.
type API struct {
	Base  string
	Token string
	HTTP  *http.Client
}

// Truth reads GET /admin/truth of a mock worker.
func (a API) Truth(ctx context.Context) (contract.Truth, error) {
	var t contract.Truth
	return t, a.get(ctx, "/admin/truth", &t)
}

// RoutingState reads GET /routing/state of a gateway.
func (a API) RoutingState(ctx context.Context) (contract.RoutingState, error) {
	var s contract.RoutingState
	return s, a.get(ctx, "/routing/state", &s)
}

// Digests reads GET /admin/truth/digests of a mock worker: what was announced after each batch from
// sequence number from on.
func (a API) Digests(ctx context.Context, rank int, from int64) ([]contract.TruthDigest, error) {
	path := "/admin/truth/digests?rank=" + strconv.Itoa(rank) + "&from=" + strconv.FormatInt(from, 10)
	body, err := a.exchange(ctx, http.MethodGet, path, nil)
	if err != nil {
		return nil, err
	}
	var out []contract.TruthDigest
	for dec := json.NewDecoder(bytes.NewReader(body)); ; {
		var d contract.TruthDigest
		switch err := dec.Decode(&d); {
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("decoding %s%s: %w", a.Base, path, err)
		}
		out = append(out, d)
	}
}

// Blocks reads GET /admin/truth/blocks of a mock worker: the blocks of a set (resident, announced,
// unannounced or ghost), and the sequence number that they belong to.
func (a API) Blocks(ctx context.Context, rank int, set string) (head contract.TruthBlocksHead, rows []contract.TruthBlock, err error) {
	path := "/admin/truth/blocks?rank=" + strconv.Itoa(rank) + "&set=" + set
	body, err := a.exchange(ctx, http.MethodGet, path, nil)
	if err != nil {
		return head, nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if err := dec.Decode(&head); err != nil {
		return head, nil, fmt.Errorf("decoding %s%s: %w", a.Base, path, err)
	}
	for {
		var b contract.TruthBlock
		switch err := dec.Decode(&b); {
		case err == io.EOF:
			return head, rows, nil
		case err != nil:
			return head, nil, fmt.Errorf("decoding %s%s: %w", a.Base, path, err)
		}
		rows = append(rows, b)
	}
}

// Match asks POST /admin/truth/match of a mock worker how many leading blocks of a prompt its first rank has.
func (a API) Match(ctx context.Context, ids []uint32) (int, error) {
	var m contract.TruthMatch
	if err := a.call(ctx, http.MethodPost, "/admin/truth/match", contract.TruthMatchRequest{TokenIDs: ids}, &m); err != nil {
		return 0, err
	}
	if len(m.Ranks) == 0 {
		return 0, fmt.Errorf("asking %s for a match: it has no rank", a.Base)
	}
	return m.Ranks[0].Blocks, nil
}

// AddFault arms a fault hook of a mock worker: POST /admin/faults. It returns the fault's id.
func (a API) AddFault(ctx context.Context, body map[string]any) (string, error) {
	var f struct {
		ID string `json:"id"`
	}
	err := a.call(ctx, http.MethodPost, "/admin/faults", body, &f)
	return f.ID, err
}

// Faults reads GET /admin/faults: every hook of a mock worker, armed or past.
func (a API) Faults(ctx context.Context) ([]contract.TruthFault, error) {
	var f struct {
		Faults []contract.TruthFault `json:"faults"`
	}
	err := a.call(ctx, http.MethodGet, "/admin/faults", nil, &f)
	return f.Faults, err
}

// HealFault ends a fault hook: DELETE /admin/faults/{id}.
func (a API) HealFault(ctx context.Context, id string) error {
	return a.call(ctx, http.MethodDelete, "/admin/faults/"+url.PathEscape(id), nil, nil)
}

// SetHandicaps replaces a gateway's handicaps and returns those it has now.
func (a API) SetHandicaps(ctx context.Context, handicaps []string) ([]string, error) {
	var now contract.RoutingHandicaps
	err := a.call(ctx, http.MethodPut, "/routing/handicaps", contract.RoutingHandicaps{Handicaps: handicaps}, &now)
	return now.Handicaps, err
}

// get reads one JSON document.
func (a API) get(ctx context.Context, path string, out any) error {
	return a.call(ctx, http.MethodGet, path, nil, out)
}

// call sends in as JSON, unless it is nil, and reads the answer into out, unless that is nil.
func (a API) call(ctx context.Context, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		raw, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding the body of %s %s: %w", method, path, err)
		}
		body = raw
	}
	answer, err := a.exchange(ctx, method, path, body)
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("decoding %s %s%s: %w", method, a.Base, path, err)
	}
	return nil
}

// exchange returns the body of an answer; one that is not a success is an error that carries its start.
func (a API) exchange(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.Base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("building %s %s%s: %w", method, a.Base, path, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.Token != "" {
		req.Header.Set("Authorization", "Bearer "+a.Token)
	}
	resp, err := a.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("asking %s %s%s: %w", method, a.Base, path, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("reading the answer of %s %s%s: %w", method, a.Base, path, err)
	}
	if resp.StatusCode/100 != 2 {
		return nil, fmt.Errorf("asking %s %s%s: status %d: %s", method, a.Base, path, resp.StatusCode, bytes.TrimSpace(answer[:min(len(answer), 200)]))
	}
	return answer, nil
}

// HostPort is the host:port of a http:// or tcp:// URL.
func HostPort(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", fmt.Errorf("reading endpoint %q: %w", raw, err)
	}
	if u.Port() == "" {
		return "", fmt.Errorf("reading endpoint %q: no port", raw)
	}
	return u.Host, nil
}
