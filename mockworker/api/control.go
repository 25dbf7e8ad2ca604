package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/gin-gonic/gin"

	"fleetdrill/mockworker/engine"
	"fleetdrill/mockworker/loop"
)

// control is what operators do to an engine while it runs. Its lock is held over a whole pause or sleep, so
// that two of them follow each other.
type control struct {
	mu sync.Mutex // guards everything below
	// asleep are the parts that sleep: weights and kv_cache, or none.
	asleep []string
}

// The parts of an engine that sleep, and that wake_up may name.
var sleepTags = []string{"weights", "kv_cache"}

// pause serves POST /pause.
func (s *Server) pause(c *gin.Context) {
	mode, err := pauseMode(c)
	if err != nil {
		sendPlainError(c, http.StatusBadRequest, err)
		return
	}
	s.control.mu.Lock()
	defer s.control.mu.Unlock()
	if err := s.pauseAll(c.Request.Context(), mode); err != nil {
		sendPlainError(c, http.StatusInternalServerError, fmt.Errorf("pausing generation: %w", err))
		return
	}
	if mode != loop.PauseKeep && c.Query("clear_cache") != "false" {
		s.clearCaches(c.Request.Context(), false)
	}
	sendJSON(c, http.StatusOK, []byte(`{"status":"paused"}`))
}

func pauseMode(c *gin.Context) (loop.PauseMode, error) {
	mode := loop.PauseMode(c.DefaultQuery("mode", string(loop.PauseAbort)))
	if c.Query("wait_for_inflight_requests") == "true" {
		mode = loop.PauseWait
	}
	switch mode {
	case loop.PauseAbort, loop.PauseWait, loop.PauseKeep:
		return mode, nil
	}
	return "", fmt.Errorf("mode is %q, must be abort, wait or keep", mode)
}

// pauseAll pauses every rank, all at once.
func (s *Server) pauseAll(ctx context.Context, mode loop.PauseMode) error {
	errs := make(chan error, len(s.o.Ranks))
	for _, l := range s.o.Ranks {
		go func() { errs <- l.Pause(ctx, mode) }()
	}
	var first error
	for range s.o.Ranks {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// clearCaches empties every rank's prefix cache at its next step boundary. The engine's answer, which is no
// while requests run, is not told, as in the real one.
func (s *Server) clearCaches(ctx context.Context, preempt bool) {
	for _, l := range s.o.Ranks {
		_ = l.Ask(ctx, func(e engine.Core) { e.ResetPrefixCache(preempt) }) // a client that is gone needs no answer
	}
}

func (s *Server) resume(c *gin.Context) {
	s.control.mu.Lock()
	defer s.control.mu.Unlock()
	s.resumeAll()
	sendJSON(c, http.StatusOK, []byte(`{"status":"resumed"}`))
}

func (s *Server) resumeAll() {
	for _, l := range s.o.Ranks {
		l.Resume()
	}
}

func (s *Server) isPaused(c *gin.Context) {
	sendJSON(c, http.StatusOK, fmt.Appendf(nil, `{"is_paused":%t}`, s.o.Ranks[0].Paused()))
}

// sleep serves POST /sleep: the engine is paused, its caches are emptied, and what comes waits until all of
// it is awake.
func (s *Server) sleep(c *gin.Context) {
	level, err := strconv.Atoi(c.DefaultQuery("level", "1"))
	if err != nil || level < 0 || level > 2 {
		sendPlainError(c, http.StatusBadRequest, fmt.Errorf("level is %q, must be 0, 1 or 2", c.Query("level")))
		return
	}
	mode, err := pauseMode(c)
	if err != nil {
		sendPlainError(c, http.StatusBadRequest, err)
		return
	}
	s.control.mu.Lock()
	defer s.control.mu.Unlock()
	if err := s.pauseAll(c.Request.Context(), mode); err != nil {
		sendPlainError(c, http.StatusInternalServerError, fmt.Errorf("going to sleep: %w", err))
		return
	}
	if level > 0 {
		// What stood still with mode keep loses its blocks and computes them anew.
		s.clearCaches(c.Request.Context(), true)
		s.control.asleep = slices.Clone(sleepTags)
	}
	s.setSleep(level)
	c.Status(http.StatusOK)
}

// wakeUp serves POST /wake_up: of the parts that tags names, or of all.
func (s *Server) wakeUp(c *gin.Context) {
	tags := c.QueryArray("tags")
	for _, tag := range tags {
		if !slices.Contains(sleepTags, tag) {
			sendPlainError(c, http.StatusBadRequest, fmt.Errorf("tag %q is not known, must be weights or kv_cache", tag))
			return
		}
	}
	s.control.mu.Lock()
	defer s.control.mu.Unlock()
	s.control.asleep = slices.DeleteFunc(s.control.asleep, func(tag string) bool { return len(tags) == 0 || slices.Contains(tags, tag) })
	if len(s.control.asleep) == 0 {
		s.setSleep(0)
		s.resumeAll()
	}
	c.Status(http.StatusOK)
}

// setSleep makes every rank's metrics tell the level.
func (s *Server) setSleep(level int) {
	for _, l := range s.o.Ranks {
		l.SetSleep(level)
	}
}

func (s *Server) isSleeping(c *gin.Context) {
	s.control.mu.Lock()
	defer s.control.mu.Unlock()
	sendJSON(c, http.StatusOK, fmt.Appendf(nil, `{"is_sleeping":%t}`, len(s.control.asleep) > 0))
}

func (s *Server) resetPrefixCache(c *gin.Context) {
	s.clearCaches(c.Request.Context(), c.Query("reset_running_requests") == "true")
	c.Status(http.StatusOK)
}

// nothingToReset serves the caches that a mock engine has none of.
func nothingToReset(c *gin.Context) { c.Status(http.StatusOK) }

// load serves GET /load: the generation requests being served, if they are tracked at all.
func (s *Server) load(c *gin.Context) {
	n, known := s.lie.See(s.o.Faults, s.now(), s.serving.Load())
	if !known {
		sendDetail(c, http.StatusNotFound, "Not Found")
		return
	}
	sendJSON(c, http.StatusOK, fmt.Appendf(nil, `{"server_load":%d}`, n))
}

// serverInfo serves GET /server_info.
func (s *Server) serverInfo(c *gin.Context) {
	switch format := c.DefaultQuery("config_format", "text"); format {
	case "json":
		s.reply(c, map[string]any{"vllm_config": s.o.Info})
	case "text":
		text, err := json.Marshal(s.o.Info)
		if err != nil {
			sendError(c, apiError{status: http.StatusInternalServerError, kind: "InternalServerError", message: err.Error()})
			return
		}
		s.reply(c, map[string]any{"vllm_config": string(text)})
	default:
		sendPlainError(c, http.StatusUnprocessableEntity, fmt.Errorf("config_format is %q, must be text or json", format))
	}
}

// sendPlainError answers as the routes for operators do: {"error": text}.
func sendPlainError(c *gin.Context, status int, err error) {
	sendJSON(c, status, append(append([]byte(`{"error":`), quote(err.Error())...), '}'))
}

// sendDetail answers as the server's framework does by itself.
func sendDetail(c *gin.Context, status int, detail string) {
	sendJSON(c, status, append(append([]byte(`{"detail":`), quote(detail)...), '}'))
}
