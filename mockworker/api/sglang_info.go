package api

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/loop"
)

// modelInfo answers /model_info.
func (s *Server) modelInfo(c *gin.Context) {
	s.reply(c, struct {
		ModelPath               string  `json:"model_path"`
		TokenizerPath           string  `json:"tokenizer_path"`
		IsGeneration            bool    `json:"is_generation"`
		PreferredSamplingParams *string `json:"preferred_sampling_params"`
		WeightVersion           string  `json:"weight_version"`
	}{s.o.Model, s.o.Model, true, nil, weightVersion})
}

// sglangInfo answers /server_info: the server's arguments, the state of each rank, and where its KV events
// are.
func (s *Server) sglangInfo(c *gin.Context) {
	info := maps.Clone(s.o.SGLang.ServerArgs)
	if info == nil {
		info = map[string]any{}
	}
	states := []map[string]any{}
	for _, r := range s.o.Ranks {
		load := r.Report().Load
		states = append(states, map[string]any{
			"last_gen_throughput": load.GenRate, "max_total_num_tokens": load.MaxTokens,
			"effective_max_running_requests_per_dp": load.MaxRunning,
		})
	}
	info["internal_states"], info["version"], info["kv_events"], info["status"] = states, s.o.Version, s.o.SGLang.Events, "ready"
	s.reply(c, info)
}

// rankLoad is one rank in /v1/loads.
type rankLoad struct {
	DPRank                   int     `json:"dp_rank"`
	Timestamp                float64 `json:"timestamp"` // unix seconds
	NumRunningReqs           int     `json:"num_running_reqs"`
	NumWaitingReqs           int     `json:"num_waiting_reqs"`
	NumWaitingUncachedTokens int64   `json:"num_waiting_uncached_tokens"`
	NumTotalReqs             int     `json:"num_total_reqs"`
	NumUsedTokens            int64   `json:"num_used_tokens"`
	MaxTotalNumTokens        int64   `json:"max_total_num_tokens"`
	TokenUsage               float64 `json:"token_usage"`
	GenThroughput            float64 `json:"gen_throughput"`
	CacheHitRate             float64 `json:"cache_hit_rate"`
	Utilization              float64 `json:"utilization"`
	MaxRunningRequests       int     `json:"max_running_requests"`
}

// loadSum is all ranks in /v1/loads.
type loadSum struct {
	TotalRunningReqs int     `json:"total_running_reqs"`
	TotalWaitingReqs int     `json:"total_waiting_reqs"`
	TotalReqs        int     `json:"total_reqs"`
	AvgTokenUsage    float64 `json:"avg_token_usage"`
	AvgThroughput    float64 `json:"avg_throughput"`
	AvgUtilization   float64 `json:"avg_utilization"`
}

// loads answers /v1/loads, of one rank if dp_rank asks for it.
func (s *Server) loads(c *gin.Context) {
	only := -1
	if text, given := c.GetQuery("dp_rank"); given {
		rank, err := strconv.Atoi(text)
		if err != nil || rank < 0 || rank >= len(s.o.Ranks) {
			sendDetail(c, http.StatusBadRequest, fmt.Sprintf("dp_rank=%s must be a whole number from 0 to %d", text, len(s.o.Ranks)-1))
			return
		}
		only = rank
	}
	now := time.Now()
	rows := []rankLoad{}
	for rank, r := range s.o.Ranks {
		report := r.Report()
		if report.LoadAbsent {
			sendDetail(c, http.StatusNotFound, "Not Found")
			return
		}
		if only < 0 || only == rank {
			rows = append(rows, loadOf(rank, now, &report))
		}
	}
	s.reply(c, struct {
		Timestamp   string     `json:"timestamp"`
		Version     string     `json:"version"`
		DPRankCount int        `json:"dp_rank_count"`
		Loads       []rankLoad `json:"loads"`
		Aggregate   loadSum    `json:"aggregate"`
	}{now.UTC().Format("2006-01-02T15:04:05.000000+00:00"), s.o.Version, len(s.o.Ranks), rows, sumOf(rows)})
}

func loadOf(rank int, now time.Time, r *loop.Snapshot) rankLoad {
	row := rankLoad{
		DPRank: rank, Timestamp: float64(now.UnixMicro()) / 1e6,
		NumRunningReqs: r.Running, NumWaitingReqs: r.Waiting, NumTotalReqs: r.Running + r.Waiting,
		NumWaitingUncachedTokens: r.WaitingUncachedTokens,
		NumUsedTokens:            usedTokens(&r.Load), MaxTotalNumTokens: r.MaxTokens, TokenUsage: r.KVUsage,
		GenThroughput: r.Throughput, CacheHitRate: r.HitRate, MaxRunningRequests: r.MaxRunning,
	}
	if r.MaxRunning > 0 {
		row.Utilization = float64(r.Running) / float64(r.MaxRunning)
	}
	return row
}

// usedTokens counts the slots in use, those of cached pages that nobody uses being free.
func usedTokens(l *engine.Load) int64 { return int64(l.KVUsage*float64(l.MaxTokens) + 0.5) }

func sumOf(rows []rankLoad) (sum loadSum) {
	for _, r := range rows {
		sum.TotalRunningReqs += r.NumRunningReqs
		sum.TotalWaitingReqs += r.NumWaitingReqs
		sum.TotalReqs += r.NumTotalReqs
		sum.AvgTokenUsage += r.TokenUsage / float64(len(rows))
		sum.AvgThroughput += r.GenThroughput / float64(len(rows))
		sum.AvgUtilization += r.Utilization / float64(len(rows))
	}
	return sum
}

// getLoad answers /get_load, the older form.
func (s *Server) getLoad(c *gin.Context) {
	type row struct {
		DPRank         int   `json:"dp_rank"`
		NumReqs        int   `json:"num_reqs"`
		NumWaitingReqs int   `json:"num_waiting_reqs"`
		NumTokens      int64 `json:"num_tokens"`
	}
	rows := []row{}
	for rank, r := range s.o.Ranks {
		report := r.Report()
		if report.LoadAbsent {
			sendDetail(c, http.StatusNotFound, "Not Found")
			return
		}
		rows = append(rows, row{rank, report.Running + report.Waiting, report.Waiting, usedTokens(&report.Load) + report.WaitingUncachedTokens})
	}
	s.reply(c, rows)
}

// flushCache empties the cache of every rank, which happens only where nothing runs or waits.
func (s *Server) flushCache(c *gin.Context) {
	all := true
	for _, r := range s.o.Ranks {
		done := false
		err := r.Ask(c.Request.Context(), func(e engine.Core) { done = e.ResetPrefixCache(false) })
		if err != nil {
			s.sglangRefuse(c, native, &apiError{status: http.StatusServiceUnavailable, message: err.Error()})
			return
		}
		all = all && done
	}
	status := http.StatusOK
	if !all {
		status = http.StatusBadRequest
	}
	c.String(status, "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the operation will not be performed.)\n")
}
