package api

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/gin-gonic/gin"
)

// apiError is an engine's error answer: {"error": {message, type, param, code}}, code equal to the status.
type apiError struct {
	status  int
	kind    string
	param   string // empty is null
	message string
}

func (e *apiError) Error() string { return e.message }

// invalidKind is the type of what the web framework refuses before the engine sees it: a body that is no JSON,
// values of the wrong type and combinations that a request cannot have.
const invalidKind = "Bad Request"

func invalid(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: invalidKind, param: param, message: fmt.Sprintf(format, args...)}
}

func badRequest(param, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, kind: "BadRequestError", param: param, message: fmt.Sprintf(format, args...)}
}

// kinds are the error types of statuses; that of others is InternalServerError.
var kinds = map[int]string{
	http.StatusBadRequest: "BadRequestError", http.StatusNotFound: "NotFoundError", http.StatusTooManyRequests: "RateLimitError",
	http.StatusServiceUnavailable: "ServiceUnavailableError",
}

// ErrorBody is an error as the port of an engine tells it on a path, for who stands before the port.
func ErrorBody(sglang bool, path string, status int, message string) []byte {
	e := &apiError{status: status, kind: cmp.Or(kinds[status], "InternalServerError"), message: message}
	switch {
	case !sglang:
		return e.body()
	case path == generatePath:
		return e.sglangBody(native)
	}
	return e.sglangBody(completion)
}

func (e *apiError) body() []byte {
	b := append([]byte(`{"error":{"message":`), quote(e.message)...)
	b = append(append(b, `,"type":`...), quote(e.kind)...)
	b = append(b, `,"param":`...)
	if e.param == "" {
		b = append(b, "null"...)
	} else {
		b = append(b, quote(e.param)...)
	}
	b = append(b, `,"code":`...)
	return append(strconv.AppendInt(b, int64(e.status), 10), "}}"...)
}

// appendQuoted appends s as a JSON string; plain text, which names are, costs a copy.
func appendQuoted(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			return append(b, quote(s)...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// quote is s as a JSON string, valid UTF-8 whatever s is.
func quote(s string) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string always has a JSON form
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func sendError(c *gin.Context, e apiError) { sendJSON(c, e.status, e.body()) }

func sendJSON(c *gin.Context, status int, body []byte) {
	h := c.Writer.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	c.Writer.WriteHeader(status)
	// A client that is gone cannot be told so.
	_, _ = c.Writer.Write(body)
}

var jsonType = []string{"application/json"}
