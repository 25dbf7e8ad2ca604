package oracle

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"fleetdrill/internal/contract"
)

const (
	// verifyTries is how often a rank is read anew when its engine no longer reaches back to the dump.
	verifyTries = 5
	// verifyPause separates them. An engine's ring of 20,000 batches is passed in seconds at the earliest.
	verifyPause = 100 * time.Millisecond
	// shown is how many differences of a rank are explained.
	shown = 5
	// maxLine bounds one JSON line: a journal line of a step with 100,000 blocks.
	maxLine = 32 << 20
)

// WorkerAdmin is one worker to verify: its id at the gateway, its engine's admin base URL (http://host:port)
// and its ranks. No ranks stands for rank 0.
type WorkerAdmin struct {
	ID       string
	AdminURL string
	Ranks    []int
}

// Report is the result of Verify; its JSON keys are those of `oracle verify --json`.
type Report struct {
	Workers []RankReport `json:"workers"`
}

// RankReport compares one rank at one sequence number, in the tiers that a gateway indexes. Blocks are distinct
// engine hashes of a tier; missing, extra and moved ones are of both tiers.
type RankReport struct {
	Worker        string `json:"worker"`
	Rank          int    `json:"rank"`
	Seq           int64  `json:"seq"`
	EngineBlocks  int    `json:"engine_blocks"`
	GatewayBlocks int    `json:"gateway_blocks"`
	// HostEngineBlocks and HostGatewayBlocks are the host tier's; the two above are the device's.
	HostEngineBlocks  int  `json:"host_engine_blocks"`
	HostGatewayBlocks int  `json:"host_gateway_blocks"`
	Missing           int  `json:"missing"`
	Extra             int  `json:"extra"`
	Moved             int  `json:"moved"`
	Equal             bool `json:"equal"`
	// Shed are blocks that the gateway gave up to stay below its bound; the missing ones may be those.
	Shed int64 `json:"shed,omitempty"`
	// Orphans are stores and host blocks that the gateway was told of without a place that it knows, since it
	// registered the worker; missing ones may be those.
	Orphans int64 `json:"orphans,omitempty"`
	// Error says why the two sides could not be compared; then Equal is false and the counts are zero.
	Error string `json:"error,omitempty"`
	// Differences are the first ones, by position.
	Differences []Difference `json:"differences,omitempty"`
}

// Equal reports that every rank was compared and none differs.
func (r Report) Equal() bool {
	for _, w := range r.Workers {
		if !w.Equal {
			return false
		}
	}
	return len(r.Workers) > 0
}

// Verify compares the index of the gateway whose admin URL is given with the announced set of every worker.
// A rank that cannot be compared is a row with an Error, not an error: the others are still worth knowing.
// The error is that of ctx.
func Verify(ctx context.Context, gatewayAdminURL string, workers []WorkerAdmin) (Report, error) {
	v := verifier{gateway: gatewayAdminURL, client: &http.Client{}}
	defer v.client.CloseIdleConnections()
	var out Report
	for _, w := range workers {
		ranks := w.Ranks
		if len(ranks) == 0 {
			ranks = []int{0}
		}
		for _, rank := range ranks {
			row, err := v.rank(ctx, w, rank)
			if ctx.Err() != nil {
				return out, fmt.Errorf("verifying %s rank %d: %w", w.ID, rank, ctx.Err())
			}
			if err != nil {
				row = RankReport{Worker: w.ID, Rank: rank, Error: err.Error()}
			}
			out.Workers = append(out.Workers, row)
		}
	}
	return out, nil
}

type verifier struct {
	gateway string
	client  *http.Client
}

// rank compares one rank. The engine may have moved on too far to know its past at the dump's number, or
// may have been restarted below it; both pass, so the pair is read anew.
func (v *verifier) rank(ctx context.Context, w WorkerAdmin, rank int) (row RankReport, err error) {
	for try := range verifyTries {
		if try > 0 {
			select {
			case <-time.After(verifyPause):
			case <-ctx.Done():
				return row, ctx.Err()
			}
		}
		if row, err = v.once(ctx, w, rank); err == nil {
			return row, nil
		}
	}
	return row, err
}

// once reads both sides at the gateway's sequence number and compares them.
func (v *verifier) once(ctx context.Context, w WorkerAdmin, rank int) (RankReport, error) {
	var head contract.DumpHead
	dump, err := read[contract.DumpBlock](ctx, v, v.gateway, "/routing/dump", url.Values{
		"worker": {w.ID}, "rank": {strconv.Itoa(rank)}}, &head)
	if err != nil {
		return RankReport{}, fmt.Errorf("reading the gateway's dump of %s rank %d: %w", w.ID, rank, err)
	}
	var truth contract.TruthBlocksHead
	blocks, err := read[contract.TruthBlock](ctx, v, w.AdminURL, "/admin/truth/blocks", url.Values{
		"rank": {strconv.Itoa(rank)}, "set": {"announced"}, "tier": {"all"}, "at": {strconv.FormatInt(head.Seq, 10)}}, &truth)
	if err != nil {
		return RankReport{}, fmt.Errorf("reading what %s rank %d had announced at %d: %w", w.ID, rank, head.Seq, err)
	}
	if truth.Seq != head.Seq {
		return RankReport{}, fmt.Errorf("reading what %s rank %d had announced at %d: the engine answered for %d",
			w.ID, rank, head.Seq, truth.Seq)
	}
	engine, gateway := split(blocks, func(b contract.TruthBlock) string { return b.Tier }),
		split(dump, func(b contract.DumpBlock) string { return b.Tier })
	diff := Compare(engine.device, gateway.device)
	diff.add(contract.TierHost, Compare(engine.host, gateway.host))
	row := RankReport{
		Worker: w.ID, Rank: rank, Seq: head.Seq, EngineBlocks: len(engine.device), GatewayBlocks: len(gateway.device),
		HostEngineBlocks: len(engine.host), HostGatewayBlocks: len(gateway.host),
		Missing: len(diff.Missing), Extra: len(diff.Extra), Moved: len(diff.Moved), Equal: diff.Equal(), Shed: head.Shed, Orphans: head.Orphans,
		Differences: diff.First(shown),
	}
	if !row.Equal {
		v.explain(ctx, w, &row)
	}
	return row, nil
}

// tiers are the blocks of a side that an index credits.
type tiers[T any] struct{ device, host []T }

// split sorts blocks by tier; those further away are nobody's claim. A block without a tier is on the device.
func split[T any](blocks []T, tier func(T) string) (out tiers[T]) {
	for _, b := range blocks {
		switch tier(b) {
		case contract.TierDevice, "":
			out.device = append(out.device, b)
		case contract.TierHost:
			out.host = append(out.host, b)
		}
	}
	return out
}

// explain adds what the engine's journal says about the first differences. Without a journal the
// differences stand unexplained.
func (v *verifier) explain(ctx context.Context, w WorkerAdmin, row *RankReport) {
	at := make(map[place]int, len(row.Differences))
	for i := range row.Differences {
		at[place{row.Differences[i].Tier, row.Differences[i].Hash}] = i
	}
	lines, err := read[contract.TruthJournal](ctx, v, w.AdminURL, "/admin/truth/journal",
		url.Values{"rank": {strconv.Itoa(row.Rank)}, "from": {"0"}}, nil)
	if err != nil {
		return
	}
	tell := func(tier string, hash contract.U64, format string, args ...any) {
		if i, ok := at[place{tier, hash}]; ok {
			d := &row.Differences[i]
			d.Events = append(d.Events, fmt.Sprintf(format, args...))
		}
	}
	for _, line := range lines {
		if line.Seq > row.Seq {
			return
		}
		if line.Cleared {
			for p := range at {
				tell(p.tier, p.hash, "%d cleared", line.Seq)
			}
		}
		sets := []contract.TruthJournalSet{{Stored: line.Stored, Removed: line.Removed}}
		for _, set := range line.Others {
			if set.Tier == contract.TierHost && set.Class == "main" {
				sets = append(sets, set)
			}
		}
		for _, set := range sets {
			for _, hash := range set.Removed {
				tell(set.Tier, hash, "%d removed", line.Seq)
			}
			for _, s := range set.Stored {
				tell(set.Tier, s.Hash, "%d %s", line.Seq, stored(s))
			}
		}
	}
}

// place is where a difference is, its tier empty for the device's.
type place struct {
	tier string
	hash contract.U64
}

func stored(s contract.TruthStore) string {
	if s.Position < 0 {
		return "stored by name"
	}
	return fmt.Sprintf("stored at %d", s.Position)
}

// read gets JSON lines: a head, if one is expected, and items.
func read[T any](ctx context.Context, v *verifier, base, path string, query url.Values, head any) ([]T, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(base, "/")+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("forming the request: %w", err)
	}
	resp, err := v.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 512))
		return nil, fmt.Errorf("%s %s: %s", resp.Status, path, strings.TrimSpace(string(body)))
	}
	return items[T](resp.Body, head)
}

func items[T any](r io.Reader, head any) (out []T, err error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	for n := 1; sc.Scan(); n++ {
		if head != nil {
			if err := json.Unmarshal(sc.Bytes(), head); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			head = nil
			continue
		}
		var item T
		if err := json.Unmarshal(sc.Bytes(), &item); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		out = append(out, item)
	}
	if err := sc.Err(); err != nil {
		return nil, err
	}
	if head != nil {
		return nil, io.ErrUnexpectedEOF
	}
	return out, nil
}
