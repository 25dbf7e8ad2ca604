// Package metrics is a mock worker's /metrics: vLLM's main series with its names, labels and buckets.
//
// The one idea to know: nothing is counted here that the engine counts itself. Counters and gauges are read
// from the loop's snapshot when they are scraped, so they cannot drift from what was served and cost a
// request nothing; only histograms observe.
package metrics
