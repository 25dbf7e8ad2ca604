package proxy

import (
	"encoding/json"
	"net/http"
	"strconv"
)

// apiError is an answer of the gateway itself in the shape of the OpenAI API, which engines share.
type apiError struct {
	status  int
	kind    string
	message string
}

func (e *apiError) Error() string { return e.message }

func badRequest(message string) *apiError {
	return &apiError{http.StatusBadRequest, "BadRequestError", message}
}

// retryAfter is the seconds a client is told to wait when no worker can take its request: about the time
// a killed worker needs to be noticed and replaced.
const retryAfter = 2

// body is the error as JSON.
func (e *apiError) body() []byte {
	b, err := json.Marshal(map[string]any{"error": map[string]any{
		"message": e.message, "type": e.kind, "param": nil, "code": e.status,
	}})
	if err != nil {
		return []byte(`{"error":{"message":"internal error","type":"InternalServerError","param":null,"code":500}}`)
	}
	return b
}

func (e *apiError) write(w http.ResponseWriter) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if e.status == http.StatusServiceUnavailable {
		h.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	body := e.body()
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(e.status)
	_, _ = w.Write(body)
}

// event is the error as one server-sent event.
func (e *apiError) event() []byte {
	return append(append([]byte("data: "), e.body()...), "\n\n"...)
}
