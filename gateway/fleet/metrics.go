package fleet

import (
	"bytes"
	"errors"
	"strconv"
)

// ErrNoLoad says that a metrics text has no load gauges.
var ErrNoLoad = errors.New("neither vllm:num_requests_running nor sglang:num_running_reqs among the metrics")

// ParseMetrics reads a load record from an engine's Prometheus text, vLLM's or SGLang's. Series of several
// ranks (label engine or dp_rank) are added up; KV usage is their mean. SGLang counts no steps. Lines that are not understood are skipped: an engine's
// page is long, and only these few lines matter here.
func ParseMetrics(text []byte) (Record, error) {
	var r Record
	running, usages := 0, 0
	for len(text) > 0 {
		line := text
		if i := bytes.IndexByte(text, '\n'); i >= 0 {
			line, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		name, value, ok := sample(line)
		if !ok {
			continue
		}
		switch name {
		case "vllm:cache_config_info":
			r.Pool += label(line, "num_gpu_blocks")
		case "sglang:cache_config_info":
			r.Pool += label(line, "num_pages")
		case "vllm:num_requests_running", "sglang:num_running_reqs":
			r.Running += int64(value)
			running++
		case "vllm:num_requests_waiting", "sglang:num_queue_reqs":
			r.Waiting += int64(value)
		case "vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage":
			r.Usage += value
			usages++
		case "vllm:iteration_tokens_total_count":
			r.Steps += int64(value)
			r.HasSteps = true
		}
	}
	if running == 0 {
		return Record{}, ErrNoLoad
	}
	if usages > 0 {
		r.Usage /= float64(usages)
	}
	return r, nil
}

// label is the whole number that a label of a sample holds, 0 when there is none: engines give some
// figures as labels of a constant.
func label(line []byte, name string) int {
	for _, before := range []string{"{", ","} {
		_, rest, found := bytes.Cut(line, []byte(before+name+`="`))
		if !found {
			continue
		}
		digits, _, _ := bytes.Cut(rest, []byte{'"'})
		if n, err := strconv.Atoi(string(digits)); err == nil && n > 0 && n <= maxPool {
			return n
		}
	}
	return 0
}

// maxPool is far above any engine's pool, blocks, and far below what overflows a sum.
const maxPool = 1e9

// maxGauge is far above any count an engine can report and far below what overflows an int64.
const maxGauge = 1e15

// sample splits one line of Prometheus text. Labels may hold any character, so the value is what stands
// behind the last brace; a timestamp behind it is ignored.
func sample(line []byte) (name string, value float64, ok bool) {
	if !bytes.HasPrefix(line, []byte("vllm:")) && !bytes.HasPrefix(line, []byte("sglang:")) {
		return "", 0, false
	}
	end := bytes.IndexAny(line, "{ ")
	if end < 0 {
		return "", 0, false
	}
	rest := line[end:]
	if rest[0] == '{' {
		rest = rest[bytes.LastIndexByte(rest, '}')+1:]
	}
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(string(fields[0]), 64)
	// The comparison also refuses NaN.
	return string(line[:end]), value, err == nil && value >= 0 && value <= maxGauge
}
