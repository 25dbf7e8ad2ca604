package mockworker

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"

	"fleetdrill/internal/contract"
)

// figures are the series of a scrape, by name and labels.
func (f *fleet) figures() map[string]float64 {
	f.t.Helper()
	_, text := f.api("GET", "/metrics", "")
	all := map[string]float64{}
	for line := range strings.Lines(text) {
		at := strings.LastIndexByte(line, ' ')
		if line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[at+1:]), 64)
		if err != nil {
			f.t.Fatalf("%q: %v", line, err)
		}
		all[line[:at]] = v
	}
	return all
}

// After requests that ended, clients that went and requests that were thrown out and computed again, every counter
// and every histogram is what the request log adds up to.
func TestMetricsAddUp(t *testing.T) {
	const vllm, sglang = `{engine="0",model_name="mock-8b"}`, `{engine_type="unified",model_name="mock-8b"}`
	for wire, names := range map[string]map[string]string{
		"vllm-0.25": {
			"served": `vllm:request_success_total{engine="0",finished_reason="length",model_name="mock-8b"}`,
			"gone":   `vllm:request_success_total{engine="0",finished_reason="abort",model_name="mock-8b"}`,
			"prompt": "vllm:prompt_tokens_total" + vllm, "cached": "vllm:prompt_tokens_cached_total" + vllm, "output": "vllm:generation_tokens_total" + vllm,
			"firsts": "vllm:time_to_first_token_seconds_count" + vllm, "gaps": "vllm:inter_token_latency_seconds_count" + vllm,
			"ends": "vllm:e2e_request_latency_seconds_count" + vllm, "preemptions": "vllm:num_preemptions_total" + vllm,
			"served prompt": "vllm:request_prompt_tokens_sum" + vllm, "served output": "vllm:request_generation_tokens_sum" + vllm,
			"served computed": "vllm:request_prefill_kv_computed_tokens_sum" + vllm, "tokens of steps": "vllm:iteration_tokens_total_sum" + vllm,
		},
		"sglang-map": {
			"served": "sglang:num_requests_total" + sglang, "gone": "sglang:num_aborted_requests_total" + sglang,
			"prompt": "sglang:prompt_tokens_total" + sglang, "output": "sglang:generation_tokens_total" + sglang,
			"cached": `sglang:cached_tokens_total{cache_source="device",engine_type="unified",model_name="mock-8b"}`,
			"firsts": "sglang:time_to_first_token_seconds_count" + sglang, "gaps": "sglang:inter_token_latency_seconds_count" + sglang,
			"ends":        "sglang:e2e_request_latency_seconds_count" + sglang,
			"preemptions": `sglang:num_retracted_requests_total{engine_type="unified",model_name="mock-8b",pp_rank="0",tp_rank="0"}`,
		},
	} {
		t.Run(wire, func(t *testing.T) {
			f := start(t, func(c *Config) { c.Wire, c.NumGPUBlocksOverride, c.Model = wire, 40, "mock-8b" })
			f.crowd()
			want := f.logged()
			got := f.figures()
			want["preemptions"] = float64(f.truth().Counters["preemptions"])
			// SGLang admits no more than it expects to have room for.
			if want["preemptions"] == 0 && wire == "vllm-0.25" || want["gone"] == 0 || want["served"] == 0 || want["cached"] == 0 {
				t.Errorf("the crowd did not do what it was to do: %v", want)
			}
			for what, name := range names {
				if v, ok := got[name]; !ok || v != want[what] {
					t.Errorf("%s is %v (there: %t), the log says %s: %v", name, v, ok, what, want[what])
				}
			}
		})
	}
}

// crowd sends more at once than a pool of 39 blocks holds, and then clients that go.
func (f *fleet) crowd() {
	f.t.Helper()
	const each, goers = 16, 4
	f.complete(prompt(1, 40), 1, "")
	held := f.arm(`{"kind": "pause"}`)
	var wg sync.WaitGroup
	for i := range each {
		wg.Go(func() { f.complete(append(prompt(1, 32), prompt(i, 20)...), 100, "") })
	}
	f.eventually("the crowd", func() bool { return f.truth().Ranks[0].Waiting == each })
	f.heal(held)
	wg.Wait()

	slow := f.arm(`{"kind": "slow", "factor": 50}`)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before := f.truth().Ranks[0].Steps
	for i := range goers {
		wg.Go(func() {
			f.hang(ctx, fmt.Sprintf(`{"prompt":%s,"max_tokens":500,"stream":true}`, jsonOf(f.t, prompt(100+i, 20))))
		})
	}
	f.eventually("a token of somebody who is to go", func() bool {
		r := f.truth().Ranks[0]
		return r.Running+r.Waiting == goers && r.Steps > before+1
	})
	cancel()
	wg.Wait()
	f.heal(slow)
	f.eventually("the engine to be empty", func() bool {
		r := f.truth().Ranks[0]
		return r.Running == 0 && r.Waiting == 0
	})
}

// logged adds the request log up.
func (f *fleet) logged() map[string]float64 {
	sum := map[string]float64{}
	for _, r := range jsonLines[contract.TruthRequest](f, "/admin/truth/requests", nil) {
		if r.OutputTokens > 0 {
			sum["firsts"]++
			sum["prompt"] += float64(r.PromptTokens)
			sum["cached"] += float64(r.CachedTokens)
			sum["output"] += float64(r.OutputTokens)
			sum["gaps"] += float64(r.OutputTokens - 1)
		}
		if r.Outcome != "length" {
			sum["gone"]++
			continue
		}
		sum["served"]++
		sum["served prompt"] += float64(r.PromptTokens)
		sum["served output"] += float64(r.OutputTokens)
		sum["served computed"] += float64(r.PromptTokens - r.CachedTokens)
	}
	sum["ends"], sum["tokens of steps"] = sum["served"], sum["prompt"]+sum["output"]
	return sum
}

// A prompt that is only computed is a request with a first token that nobody gets: it counts as served, with its
// prompt, and no token is generated.
func TestMetricsOfAPromptAlone(t *testing.T) {
	f := start(t, func(c *Config) { c.Wire, c.Model = "sglang-map", "mock-8b" })
	for range 2 {
		if status, text := f.api("POST", "/generate", `{"input_ids":`+jsonOf(t, prompt(1, 40))+`,"sampling_params":{"max_new_tokens":0}}`); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
	}
	got := f.figures()
	const front = `{engine_type="unified",model_name="mock-8b"}`
	for name, want := range map[string]float64{
		"sglang:num_requests_total" + front: 2, "sglang:prompt_tokens_total" + front: 80, "sglang:generation_tokens_total" + front: 0,
		`sglang:cached_tokens_total{cache_source="device",engine_type="unified",model_name="mock-8b"}`: 32,
		"sglang:inter_token_latency_seconds_count" + front:                                             0, "sglang:e2e_request_latency_seconds_count" + front: 2,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s is %v (there: %t), want %v", name, v, ok, want)
		}
	}
}

// The throughput that an SGLang worker tells lies with its other gauges, on its metrics and its load routes.
func TestStaleThroughput(t *testing.T) {
	f := start(t, func(c *Config) { c.Wire, c.Model = "sglang-map", "mock-8b" })
	const gauge = `sglang:gen_throughput{engine_type="unified",model_name="mock-8b",pp_rank="0",tp_rank="0"}`
	const tokens = `sglang:generation_tokens_total{engine_type="unified",model_name="mock-8b"}`
	f.complete(prompt(1, 20), 20, "")
	first := f.figures()[gauge]
	if first <= 0 {
		t.Fatalf("throughput %v behind 20 tokens", first)
	}
	frozen := f.arm(`{"kind": "stale_load", "mode": "freeze"}`)
	f.figures() // the first look is what it stays at
	f.arm(`{"kind": "slow", "factor": 20}`)
	f.complete(prompt(2, 20), 10, "")
	if got := f.figures(); got[gauge] != first || got[tokens] != 30 {
		t.Errorf("frozen: throughput %v, was %v; %v tokens counted, want 30", got[gauge], first, got[tokens])
	}
	f.heal(frozen)
	if got := f.figures()[gauge]; got == first || got <= 0 {
		t.Errorf("healed: throughput %v, was %v before slow steps", got, first)
	}
	zero := f.arm(`{"kind": "stale_load", "mode": "zero"}`)
	if got, ok := f.figures()[gauge]; !ok || got != 0 {
		t.Errorf("zero: throughput %v, there: %t", got, ok)
	}
	if _, text := f.api("GET", "/v1/loads", ""); !strings.Contains(text, `"gen_throughput":0`) {
		t.Errorf("zero: /v1/loads says %s", text)
	}
	f.heal(zero)
	f.arm(`{"kind": "stale_load", "mode": "absent"}`)
	if got, ok := f.figures()[gauge]; ok {
		t.Errorf("absent: throughput %v is told", got)
	}
}
