package contract

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "write the golden samples anew")

// documents are what processes exchange; each has a golden sample. A key may be added to a sample, never
// renamed or removed.
var documents = map[string]any{
	"ready":           &ReadyFile{},
	"truth":           &Truth{},
	"truth_blocks":    &TruthBlocksHead{},
	"truth_block":     &TruthBlock{},
	"truth_digest":    &TruthDigest{},
	"truth_journal":   &TruthJournal{},
	"truth_match":     &TruthMatch{},
	"truth_match_ask": &TruthMatchRequest{},
	"truth_request":   &TruthRequest{},
	"fault_armed":     &FaultArmedReply{},
	"fault_list":      &FaultList{},
	"routing_state":   &RoutingState{},
	"routing_event":   &RoutingEvent{},
	"dump_head":       &DumpHead{},
	"dump_block":      &DumpBlock{},
	"worker_spec":     &WorkerSpec{},
}

func TestGoldenSamples(t *testing.T) {
	for name, doc := range documents {
		t.Run(name, func(t *testing.T) {
			fill(reflect.ValueOf(doc).Elem())
			got, err := json.MarshalIndent(doc, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".json")
			if *rewrite {
				if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(bytes.TrimSpace(want)), string(got)); diff != "" {
				t.Errorf("%s changed (-want +got):\n%s", name, diff)
			}
			// What is written can be read back, by a reader that knows every key.
			back := reflect.New(reflect.TypeOf(doc).Elem()).Interface()
			dec := json.NewDecoder(bytes.NewReader(want))
			dec.DisallowUnknownFields()
			if err := dec.Decode(back); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(doc, back); diff != "" {
				t.Errorf("%s read back (-written +read):\n%s", name, diff)
			}
		})
	}
}

// fill gives every field a value that is not its zero value, so that omitempty hides nothing.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		elem := reflect.New(v.Type().Elem()).Elem()
		fill(elem)
		v.SetMapIndex(reflect.ValueOf("key"), elem)
	case reflect.Interface:
		v.Set(reflect.ValueOf("any"))
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(1.5)
	case reflect.Uint64:
		// A reader with 53-bit numbers would change it.
		v.SetUint(1<<63 + 1)
	case reflect.Uint32:
		v.SetUint(7)
	default:
		v.SetInt(7)
	}
}

func TestU64(t *testing.T) {
	for _, good := range []string{`"18446744073709551615"`, `18446744073709551615`, `"0"`} {
		var u U64
		if err := json.Unmarshal([]byte(good), &u); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{`"-1"`, `1.5`, `"18446744073709551616"`, `""`, `null`, `"0x1"`} {
		var u U64
		if err := u.UnmarshalJSON([]byte(bad)); err == nil {
			t.Errorf("%s was read as %d", bad, u)
		}
	}
}
