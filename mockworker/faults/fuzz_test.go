package faults

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fleetdrill/internal/contract"
)

// FuzzParse: whatever is taken can be shown and taken again, and means the same.
func FuzzParse(f *testing.F) {
	for _, body := range []string{
		`{"kind":"pause","for":"8s"}`,
		`{"kind":"wedge","rank":1}`,
		`{"kind":"drop_batches","count":20,"replay":"lose"}`,
		`{"kind":"delay_publisher","by":"1.5s","for":"1h"}`,
		`{"kind":"mute_publisher"}`,
		`{"kind":"restart_publisher","cache":"empty","socket":"rebind","ahead":3}`,
		`{"kind":"exit","code":0,"after_tokens":9}`,
		`{"kind":"duplicate","of":"hash","count":2}`,
		`{"kind":"corrupt","field":"seq"}`,
		`{"kind":"late_removals","steps":3,"for":"9s"}`,
		`{"kind":"replay_truncate","after":0,"end":"keep"}`,
		`{"kind":"slow","factor":1e2,"jitter":0.5}`,
		`{"kind":"leak","bytes_per_request":4096}`,
		`null`, `{"kind":null}`, `{"kind":"pause","rank":1e0}`, `{"kind":"drop_batches","count":18446744073709551617}`,
	} {
		f.Add([]byte(body))
	}
	w := Worker{Ranks: 2, Events: true}
	f.Fuzz(func(t *testing.T, body []byte) {
		sp, err := Parse(body, w)
		if err != nil {
			return
		}
		shown := sp.params()
		shown["kind"] = sp.Kind
		again, err := json.Marshal(shown)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(again, w)
		if err != nil {
			t.Fatalf("%s was taken and shown as %s: %v", body, again, err)
		}
		if diff := cmp.Diff(sp, back); diff != "" {
			t.Fatalf("%s (-taken +shown):\n%s", body, diff)
		}
	})
}

// Every parameter of the table has a place in a Spec, of a type that its form can be read into, and a default
// that means itself.
func TestEveryParameterHasAPlace(t *testing.T) {
	for _, h := range contract.Hooks {
		var s Spec
		for _, p := range paramsOf(h, &s) {
			ok := false
			switch p.Form {
			case contract.HookWhole:
				_, i := p.at.(*int)
				_, i64 := p.at.(*int64)
				ok = i || i64
			case contract.HookNumber, contract.HookShare:
				_, ok = p.at.(*float64)
			case contract.HookDuration:
				_, ok = p.at.(*time.Duration)
			case contract.HookWord:
				_, ok = p.at.(*string)
			}
			if !ok {
				t.Errorf("%s.%s goes to a %T", h.Kind, p.Name, p.at)
				continue
			}
			if p.setDefault(); p.Default != "" && fmt.Sprint(p.value()) != p.Default {
				t.Errorf("%s.%s: the default %q reads as %v", h.Kind, p.Name, p.Default, p.value())
			}
		}
	}
}

// A worker without events has no publisher to break.
func TestPublisherFaultsNeedAPublisher(t *testing.T) {
	for _, kind := range kinds() {
		body := map[string]any{"kind": kind}
		switch kind {
		case "drop_batches":
			body["count"] = 1
		case "delay_publisher", "late_removals":
			body["by"] = "1s"
		case "slow":
			body["factor"] = 2
		case "leak":
			body["bytes_per_request"] = 1
		}
		text, _ := json.Marshal(body)
		if _, err := Parse(text, Worker{Ranks: 1, Events: true}); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		hook, _ := contract.HookOf(kind)
		if _, err := Parse(text, Worker{Ranks: 1}); (err == nil) == hook.Events {
			t.Errorf("%s without events: %v", text, err)
		}
	}
}

// A set remembers many faults, not all: the oldest that are over are forgotten, a live one never.
func TestForgetsTheOldest(t *testing.T) {
	s := New()
	if _, err := s.Arm(0, Spec{Kind: "wedge"}); err != nil {
		t.Fatal(err)
	}
	for range 2 * maxKept {
		id, err := s.Arm(0, Spec{Kind: "pause"})
		if err != nil {
			t.Fatal(err)
		}
		s.Heal(0, id)
	}
	all := s.List(0)
	if len(all) != maxKept || all[0].Kind != "wedge" || all[len(all)-1].ID != "f513" {
		t.Errorf("%d faults, from %+v to %+v", len(all), all[0], all[len(all)-1])
	}
}
