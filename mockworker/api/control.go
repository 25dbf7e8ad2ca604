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

// control is what operators do to an engine while it runs: one thing after another, but for a resume or
// wake-up, which breaks off a pause or sleep that still waits for requests to end.
type control struct {
	turn sync.Mutex // held over a whole pause, sleep, resume or wake-up

	mu sync.Mutex // guards everything below
	// breakOff ends the wait of the pause that has its turn; nil without one. resuming are those who would
	// call it.
	breakOff context.CancelFunc
	resuming int
	// asleep are the parts that sleep: weights and kv_cache, or none.
	asleep []string
}

// awaken takes the turn for a resume or wake-up.
func (c *control) awaken() {
	c.mu.Lock()
	c.resuming++
	if c.breakOff != nil {
		c.breakOff()
	}
	c.mu.Unlock()
	c.turn.Lock()
	c.mu.Lock()
	c.resuming--
	c.mu.Unlock()
}

// waits notes who may break off a wait that begins, nil when it has ended.
func (c *control) waits(breakOff context.CancelFunc) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.breakOff = breakOff; breakOff != nil && c.resuming > 0 {
		breakOff()
	}
}

func (c *control) setAsleep(parts []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asleep = parts
}

// wake takes the named parts out of sleep, or all, and says whether none is left there.
func (c *control) wake(tags []string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asleep = slices.DeleteFunc(c.asleep, func(tag string) bool { return len(tags) == 0 || slices.Contains(tags, tag) })
	return len(c.asleep) == 0
}

func (c *control) sleeps() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.asleep) > 0
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
	s.control.turn.Lock()
	defer s.control.turn.Unlock()
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

// pauseAll pauses every rank, all at once. Its caller has the turn.
func (s *Server) pauseAll(ctx context.Context, mode loop.PauseMode) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.control.waits(cancel)
	defer s.control.waits(nil)
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
	s.control.awaken()
	defer s.control.turn.Unlock()
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
	s.control.turn.Lock()
	defer s.control.turn.Unlock()
	if err := s.pauseAll(c.Request.Context(), mode); err != nil {
		sendPlainError(c, http.StatusInternalServerError, fmt.Errorf("going to sleep: %w", err))
		return
	}
	if level > 0 {
		// What stood still with mode keep loses its blocks and computes them anew.
		s.clearCaches(c.Request.Context(), true)
		s.control.setAsleep(slices.Clone(sleepTags))
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
	s.control.awaken()
	defer s.control.turn.Unlock()
	if s.control.wake(tags) {
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
	sendJSON(c, http.StatusOK, fmt.Appendf(nil, `{"is_sleeping":%t}`, s.control.sleeps()))
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
