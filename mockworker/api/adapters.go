package api

import (
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/gin-gonic/gin"
)

// adapter is a LoRA adapter that is served under a name of its own. Its id goes into events.
type adapter struct {
	name, path string
	id         int
}

// adapters are those loaded now, in order of loading.
type adapters struct {
	mu   sync.RWMutex // guards everything below
	list []adapter
	next int // the last id given; ids are not used again
}

// Adapter is one to serve from the start.
type Adapter struct{ Name, Path string }

// maxAdapters bounds what may be loaded at run time.
const maxAdapters = 1024

func (a *adapters) add(name, path string) (ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.list) >= maxAdapters || slices.ContainsFunc(a.list, func(x adapter) bool { return x.name == name }) {
		return false
	}
	a.next++
	a.list = append(a.list, adapter{name, path, a.next})
	return true
}

func (a *adapters) remove(name string) (ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before := len(a.list)
	a.list = slices.DeleteFunc(a.list, func(x adapter) bool { return x.name == name })
	return len(a.list) < before
}

func (a *adapters) find(name string) *adapter {
	a.mu.RLock()
	defer a.mu.RUnlock()
	i := slices.IndexFunc(a.list, func(x adapter) bool { return x.name == name })
	if i < 0 {
		return nil
	}
	found := a.list[i]
	return &found
}

func (a *adapters) all() []adapter {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return slices.Clone(a.list)
}

// resolve finds what a request means by its model: the base model (nil), or an adapter.
func (s *Server) resolve(model string) (*adapter, *apiError) {
	if model == "" || model == s.o.Model {
		return nil, nil
	}
	if a := s.adapters.find(model); a != nil {
		return a, nil
	}
	return nil, &apiError{status: http.StatusNotFound, kind: "NotFoundError", param: "model",
		message: fmt.Sprintf("The model `%s` does not exist.", model)}
}

type adapterRequest struct {
	Name string `json:"lora_name"`
	Path string `json:"lora_path"`
}

func (s *Server) loadAdapter(c *gin.Context) {
	var q adapterRequest
	if bad := s.decode(c, &q); bad != nil {
		sendError(c, *bad)
		return
	}
	switch {
	case q.Name == "" || q.Path == "":
		sendError(c, apiError{status: http.StatusBadRequest, kind: "InvalidUserInput", message: "Both 'lora_name' and 'lora_path' must be provided."})
	case q.Name == s.o.Model || s.adapters.find(q.Name) != nil:
		sendError(c, apiError{status: http.StatusBadRequest, kind: "InvalidUserInput",
			message: fmt.Sprintf("The lora adapter '%s' has already been loaded.", q.Name)})
	case !s.adapters.add(q.Name, q.Path):
		sendError(c, apiError{status: http.StatusBadRequest, kind: "InvalidUserInput",
			message: fmt.Sprintf("%d lora adapters are loaded, and no more are taken: unload one first.", maxAdapters)})
	default:
		sendText(c, fmt.Sprintf("Success: LoRA adapter '%s' added successfully.", q.Name))
	}
}

func (s *Server) unloadAdapter(c *gin.Context) {
	var q adapterRequest
	if bad := s.decode(c, &q); bad != nil {
		sendError(c, *bad)
		return
	}
	if !s.adapters.remove(q.Name) {
		sendError(c, apiError{status: http.StatusNotFound, kind: "NotFoundError", message: fmt.Sprintf("The lora adapter '%s' cannot be found.", q.Name)})
		return
	}
	sendText(c, fmt.Sprintf("Success: LoRA adapter '%s' removed successfully.", q.Name))
}

func sendText(c *gin.Context, text string) {
	c.Writer.Header()["Content-Type"] = plainType
	c.Writer.WriteHeader(http.StatusOK)
	_, _ = c.Writer.WriteString(text) // a client that is gone cannot be told so
}

var plainType = []string{"text/plain; charset=utf-8"}
