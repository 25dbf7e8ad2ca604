package truth

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"

	"fleetdrill/internal/shared"
)

// TestGoldenPayloads reads every golden batch that is ever sent and compares what a fold needs of it with
// the batch as the vectors spell it: type, hashes, salt.
func TestGoldenPayloads(t *testing.T) {
	rows, salts := 0, 0
	for line := range shared.Lines(t, "vectors/event_payloads.jsonl") {
		var row struct {
			Profile, Note string
			Batch         json.RawMessage
			Payload       string `json:"payload_hex"`
		}
		if err := json.Unmarshal(line, &row); err != nil {
			t.Fatal(err)
		}
		if row.Profile == "decode-only" {
			continue
		}
		payload, err := hex.DecodeString(row.Payload)
		if err != nil {
			t.Fatal(err)
		}
		var d decoder
		got, err := d.batch(payload)
		if err != nil {
			t.Errorf("%s, %s: %v", row.Profile, row.Note, err)
			continue
		}
		want := spelled(t, row.Batch)
		if len(got) != len(want) {
			t.Fatalf("%s, %s: %d events, want %d", row.Profile, row.Note, len(got), len(want))
		}
		for i, e := range got {
			if w := want[i]; e.kind != w.kind || !slices.Equal(e.hashes, w.hashes) || e.salt != w.salt {
				t.Errorf("%s, %s, event %d: read kind %d, hashes %x, salt %q; want %d, %x, %q",
					row.Profile, row.Note, i, e.kind, e.hashes, e.salt, w.kind, w.hashes, w.salt)
			}
			if e.kind == kindStored && 4*e.blockSize*len(e.hashes) != len(e.tokens) && e.blockSize > 0 {
				t.Errorf("%s, %s, event %d: %d bytes of tokens in %d blocks of %d", row.Profile, row.Note, i, len(e.tokens), len(e.hashes), e.blockSize)
			}
			salts += len(e.salt)
		}
		rows++
	}
	if rows < 80 || salts == 0 {
		t.Errorf("%d rows, salts of %d bytes", rows, salts)
	}
}

// spelled reads type, hashes and salt of a batch in JSON, whose events are objects or arrays.
func spelled(t *testing.T, batch json.RawMessage) (out []event) {
	t.Helper()
	var parts []json.RawMessage
	var list []json.RawMessage
	if err := json.Unmarshal(batch, &parts); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(parts[1], &list); err != nil {
		t.Fatal(err)
	}
	for _, raw := range list {
		var ev struct {
			Type   string
			Hashes []json.RawMessage `json:"block_hashes"`
			Salt   string            `json:"cache_salt"`
			Keys   [][]any           `json:"extra_keys"`
		}
		if raw[0] == '{' {
			if err := json.Unmarshal(raw, &ev); err != nil {
				t.Fatal(err)
			}
		} else {
			var array []json.RawMessage
			err := json.Unmarshal(raw, &array)
			if err == nil {
				err = json.Unmarshal(array[0], &ev.Type)
			}
			if err == nil && len(array) > 1 {
				err = json.Unmarshal(array[1], &ev.Hashes)
			}
			if last := array[len(array)-1]; err == nil && last[0] == '{' {
				err = json.Unmarshal(last, &ev)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		e := event{kind: kindOf([]byte(ev.Type)), salt: ev.Salt}
		if len(ev.Keys) > 0 && len(ev.Keys[0]) > 0 && ev.Keys[0][0] != "adapter" { // a lone text is the salt, or the adapter
			e.salt, _ = ev.Keys[0][len(ev.Keys[0])-1].(string)
		}
		for _, h := range ev.Hashes {
			e.hashes = append(e.hashes, spelledHash(t, string(h)))
		}
		out = append(out, e)
	}
	return out
}

// spelledHash reads an integer, signed or not, or the last 8 bytes of {"bin": hex}.
func spelledHash(t *testing.T, s string) uint64 {
	t.Helper()
	if bin, ok := strings.CutPrefix(s, `{"bin": "`); ok {
		digits := strings.TrimSuffix(bin, `"}`)
		v, err := strconv.ParseUint(digits[len(digits)-16:], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v, err := strconv.ParseInt(s, 10, 64); err == nil {
		return uint64(v)
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}
